import type { ListenerNode, LoadBalancerTree } from '../../load-balancer/tree/tree.js'

/** What is known of a certificate that listeners refer to. */
export type KnownCertificate = { ref: string; digest: string; names: readonly string[]; keyType: string }

/** One handshake, and what it must show. */
export type Proof = {
  listenerId: string
  port: number
  /** Null to ask for none, which gives the default certificate. */
  name: string | null
  /** `rsa` or `ec`: with which keys the client can verify. */
  keyType: string
  /** Digests of the certificates that may be served. */
  accepted: readonly string[]
}

/** For each listener; a certificate has a handful, and HAProxy chooses by name alone. */
const MAX_NAMES = 100

/** Asked for in place of a wildcard. */
const ANY_LABEL = 'krater-proof'

/**
 * The handshakes that show whether each listener serves what it should: one for each name of its certificates and kind of
 * key, and one without a name. Leaves out certificates of which nothing is known yet. Pure.
 */
export function planProofs(tree: LoadBalancerTree, known: readonly KnownCertificate[]): Proof[] {
  if (!tree.adminStateUp || tree.change === 'delete') return []
  const byRef = new Map(known.map(one => [one.ref, one]))
  return tree.listeners
    .filter(({ change, adminStateUp, connectionLimit }) => change !== 'delete' && adminStateUp && connectionLimit !== 0)
    .flatMap(listener => {
      const { id, protocolPort, defaultTlsContainerRef, sniContainerRefs } = listener
      const refs = defaultTlsContainerRef === null ? sniContainerRefs : [defaultTlsContainerRef, ...sniContainerRefs]
      const [first, ...others] = refs.map(ref => byRef.get(ref))
      const place = { listenerId: id, port: protocolPort }
      const unnamed =
        first === undefined ? [] : [{ ...place, name: null, keyType: first.keyType, accepted: [first.digest] }]
      const certificates = [first, ...others].flatMap(one => one ?? [])
      const proofs = [...unnamed, ...namedProofs(certificates).map(proof => ({ ...place, ...proof }))]
      return proofs.filter(({ keyType }) => isNegotiable(listener, keyType))
    })
}

/** Whether a client that takes this kind of key alone can agree with the listener on a cipher. TLS 1.3 takes any. */
function isNegotiable({ tlsVersions, tlsCiphers }: ListenerNode, keyType: string): boolean {
  if (tlsCiphers === null || (tlsVersions ?? ['TLSv1.3']).includes('TLSv1.3')) return true
  const ciphers = tlsCiphers.split(/[:,]/)
  return ciphers.some(cipher => /ECDSA/.test(cipher) === (keyType === 'ec'))
}

type NamedProof = Pick<Proof, 'name' | 'keyType' | 'accepted'>

function namedProofs(certificates: readonly KnownCertificate[]): NamedProof[] {
  const proofs = new Map<string, { name: string; keyType: string; accepted: string[] }>()
  const provable = certificates.map(one => one.names.filter(isDnsName))
  // One name of each certificate, then the others.
  const inOrder = [...provable.flatMap(([first]) => first ?? []), ...provable.flat()]
  const names = [...new Set(inOrder)].slice(0, MAX_NAMES)
  for (const name of names) {
    const asked = name.startsWith('*.') ? `${ANY_LABEL}${name.slice(1)}` : name
    for (const { keyType, digest } of certificates.filter(one => one.names.includes(name))) {
      const key = `${asked} ${keyType}`
      const proof = proofs.get(key) ?? { name: asked, keyType, accepted: [] }
      proofs.set(key, { ...proof, accepted: [...proof.accepted, digest] })
    }
  }
  return [...proofs.values()]
}

/** SNI carries no addresses. */
const isDnsName = (name: string): boolean =>
  /^(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?$/.test(name) && !/^[\d.]+$/.test(name)
