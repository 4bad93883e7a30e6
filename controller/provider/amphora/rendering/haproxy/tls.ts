import type { TlsPart } from '../../../../../amphora-agent/protocol/desired.js'
import { PROOF_NAME, proofSocket } from '../../../../../amphora-agent/protocol/paths.js'
import { certificatePath, listPath, materialPath } from '../../../../../amphora-agent/protocol/tls.js'
import { readReference } from '../../../../../x509/material/reference.js'
import { MOZILLA_INTERMEDIATE } from '../../../../load-balancer/options.js'
import type { ListenerNode, LoadBalancerTree, PoolNode, TlsMaterial } from '../../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../../provider.js'
import { type ConfigurationWord, cipherString, joined, keywords } from '../quote.js'

type Version = NonNullable<ListenerNode['tlsVersions']>[number]
type TlsOptions = Pick<ListenerNode, 'tlsVersions' | 'tlsCiphers' | 'alpnProtocols'>

/** Oldest first. HAProxy does not know SSLv3 any more; a listener that allows it allows the rest of its list. */
const VERSIONS: readonly Version[] = ['TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3']

/** Where none are chosen: a PROMETHEUS listener has no defaults in the API. */
const DEFAULT_VERSIONS: readonly Version[] = ['TLSv1.2', 'TLSv1.3']

const HAPROXY_NAMES: Readonly<Partial<Record<Version, string>>> = { TLSv1: 'TLSv1.0' }

/** Mozilla's curves, without the one that OpenSSL knows only since 3.5. */
const CURVES = keywords('curves X25519:prime256v1:secp384r1')

const VERIFY = { NONE: null, OPTIONAL: keywords('verify optional'), MANDATORY: keywords('verify required') }

/** Whether clients of a listener speak TLS with HAProxy. */
export const terminatesTls = ({ protocol, defaultTlsContainerRef, sniContainerRefs }: ListenerNode): boolean =>
  protocol === 'TERMINATED_HTTPS' ||
  (protocol === 'PROMETHEUS' && (defaultTlsContainerRef !== null || sniContainerRefs.length > 0))

/** Reasons why the certificate of a client is bad, by OpenSSL's numbers; null stands for all. */
export type CertificateErrors = ReadonlySet<number> | null

/** Clients may or must show a certificate. */
export const authenticatesClients = (listener: ListenerNode): boolean =>
  terminatesTls(listener) && listener.clientCaTlsContainerRef !== null && listener.clientAuthentication !== 'NONE'

/**
 * The words of a `bind` line after its address. Certificates are in a list, so that they can change at runtime.
 * @param handled errors with which a client may connect, if the listener does not insist on a certificate
 * @param hasDefaultAlpn this HAProxy offers HTTP/2 on its own unless told otherwise: since 2.8
 * @throws ProvisioningFault for a value that cannot be written
 */
export function bindTls(
  listener: ListenerNode,
  handled: CertificateErrors,
  hasDefaultAlpn: boolean,
): ConfigurationWord {
  const what = `Listener ${listener.id}`
  const verify = listener.clientCaTlsContainerRef === null ? null : VERIFY[listener.clientAuthentication]
  const authority = keywords(`ca-file ${materialPath(listener.id, 'client-ca')}`)
  const revocationList = keywords(`crl-file ${materialPath(listener.id, 'client-crl')}`)
  return joined([
    keywords(`ssl crt-list ${listPath(listener.id)}`),
    ...versionWords(listener, what),
    ...cipherWords(listener, what),
    CURVES,
    keywords('prefer-client-ciphers no-tls-tickets'),
    alpnWords(listener, hasDefaultAlpn),
    ...(verify === null ? [] : [authority, verify]),
    ...(verify !== null && listener.clientAuthentication === 'OPTIONAL' ? ignoredErrors(handled) : []),
    ...(verify === null || listener.clientCrlContainerRef === null ? [] : [revocationList]),
  ])
}

function ignoredErrors(handled: CertificateErrors): ConfigurationWord[] {
  const errors = handled === null ? 'all' : [...handled].sort((a, b) => a - b).join(',')
  return errors === '' ? [] : [keywords(`ca-ignore-err ${errors} crt-ignore-err ${errors}`)]
}

/** Where the agent reaches the listener on an amphora of a pair, whether or not it has the VIP. */
export const proofBind = ({ id }: ListenerNode): ConfigurationWord =>
  keywords(`unix@${proofSocket(id)} mode 600 name ${PROOF_NAME}`)

/**
 * The words of a server towards members that speak TLS; empty for others.
 * @throws ProvisioningFault for a value that cannot be written
 */
export function serverTls(pool: PoolNode, http: boolean): ConfigurationWord[] {
  if (!pool.tlsEnabled) return []
  const what = `Pool ${pool.id}`
  const hasAuthority = pool.caTlsContainerRef !== null
  return [
    keywords('ssl'),
    keywords(hasAuthority ? `verify required ca-file ${materialPath(pool.id, 'ca')}` : 'verify none'),
    ...(hasAuthority && pool.crlContainerRef !== null ? [keywords(`crl-file ${materialPath(pool.id, 'crl')}`)] : []),
    ...(pool.tlsContainerRef === null ? [] : [keywords(`crt ${materialPath(pool.id, 'client')}`)]),
    ...versionWords(pool, what),
    ...cipherWords(pool, what),
    // What a TCP listener relays is the client's choice.
    ...(http && pool.alpnProtocols !== null ? [keywords(`alpn ${pool.alpnProtocols.join(',')}`)] : []),
  ]
}

/** HAProxy's floor is TLS 1.2 unless told otherwise, so a range is always written out. */
function versionWords({ tlsVersions }: TlsOptions, what: string): ConfigurationWord[] {
  const allowed = VERSIONS.filter(version => (tlsVersions ?? DEFAULT_VERSIONS).includes(version))
  const [oldest, newest] = [allowed.at(0), allowed.at(-1)]
  const problem = versionProblem(allowed)
  if (oldest === undefined || newest === undefined || problem !== null) {
    throw new ProvisioningFault('configuration-refused', `${what}, tls_versions ${problem}.`)
  }
  const nameOf = (version: Version) => HAPROXY_NAMES[version] ?? version
  return [keywords(`ssl-min-ver ${nameOf(oldest)} ssl-max-ver ${nameOf(newest)}`)]
}

/**
 * What is wrong with a list of TLS versions, as a clause; null if nothing is. HAProxy ignores no-tlsv11 beside
 * ssl-min-ver, and without that its floor is TLS 1.2, so it cannot leave out a version between two others.
 */
export function versionProblem(versions: readonly unknown[]): string | null {
  const allowed = VERSIONS.filter(version => versions.includes(version))
  const [oldest, newest] = [allowed.at(0), allowed.at(-1)]
  if (oldest === undefined || newest === undefined) return 'allows only SSLv3, which HAProxy does not know'
  const missing = VERSIONS.slice(VERSIONS.indexOf(oldest), VERSIONS.indexOf(newest)).find(one => !allowed.includes(one))
  return missing === undefined ? null : `leaves out ${missing} between others, which HAProxy cannot`
}

/** OpenSSL has one list for TLS 1.3 and one for the versions before. The old ones need its weakest security level. */
function cipherWords({ tlsCiphers, tlsVersions }: TlsOptions, what: string): ConfigurationWord[] {
  const allowsOld = tlsVersions?.some(version => version === 'TLSv1' || version === 'TLSv1.1') ?? false
  const chosen = tlsCiphers ?? (allowsOld ? '' : MOZILLA_INTERMEDIATE)
  const names = chosen.split(':').filter(name => name !== '')
  const suites = names.filter(name => /^TLS_/.test(name))
  const ciphers = names.filter(name => !suites.includes(name))
  const older = allowsOld ? [...(ciphers.length === 0 ? ['DEFAULT'] : ciphers), '@SECLEVEL=0'] : ciphers
  return [
    ...(older.length === 0 ? [] : [keywords('ciphers'), cipherString(older.join(':'), `${what}, tls_ciphers`)]),
    ...(suites.length === 0 ? [] : [keywords('ciphersuites'), cipherString(suites.join(':'), `${what}, tls_ciphers`)]),
  ]
}

function alpnWords({ alpnProtocols }: TlsOptions, hasDefaultAlpn: boolean): ConfigurationWord {
  if (alpnProtocols !== null && alpnProtocols.length > 0) return keywords(`alpn ${alpnProtocols.join(',')}`)
  return hasDefaultAlpn ? keywords('no-alpn') : joined([])
}

/** The API accepts no other references. */
function sniPath(ref: string): string {
  const target = readReference(ref)
  if (target === null) throw new ProvisioningFault('configuration-refused', 'A certificate reference is malformed.')
  return certificatePath(target.id)
}

/**
 * What HAProxy's files for TLS hold. A file keeps its name when what it holds changes, so that HAProxy can take it over
 * at runtime. Pure.
 */
export function tlsPart(
  tree: LoadBalancerTree,
  listeners: readonly ListenerNode[],
  pools: readonly PoolNode[],
): TlsPart {
  const files = new Map<string, TlsPart['files'][number]>()
  const add = (path: string, ref: string | null, kind: TlsMaterial['kind']): string[] => {
    if (ref === null) return []
    const known = tree.material.find(one => one.ref === ref && one.kind === kind)
    files.set(path, { path, ref, kind, digest: known?.digest ?? null })
    return [path]
  }
  const lists = listeners.filter(terminatesTls).map(listener => {
    const { id, defaultTlsContainerRef, sniContainerRefs } = listener
    const [first, ...others] =
      defaultTlsContainerRef === null ? sniContainerRefs : [defaultTlsContainerRef, ...sniContainerRefs]
    const certificates = [
      ...add(materialPath(id, 'default'), first ?? null, 'certificate'),
      ...others.filter(ref => ref !== first).flatMap(ref => add(sniPath(ref), ref, 'certificate')),
    ]
    if (listener.clientAuthentication !== 'NONE') {
      add(materialPath(id, 'client-ca'), listener.clientCaTlsContainerRef, 'authority')
      add(materialPath(id, 'client-crl'), listener.clientCrlContainerRef, 'revocation list')
    }
    return { path: listPath(id), listenerId: id, certificates: [...new Set(certificates)] }
  })
  for (const pool of pools.filter(({ tlsEnabled }) => tlsEnabled)) {
    add(materialPath(pool.id, 'client'), pool.tlsContainerRef, 'certificate')
    add(materialPath(pool.id, 'ca'), pool.caTlsContainerRef, 'authority')
    add(materialPath(pool.id, 'crl'), pool.crlContainerRef, 'revocation list')
  }
  return { files: [...files.values()], lists }
}
