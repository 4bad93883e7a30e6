/** What a reference names. Its host is ignored: it could be anyone's. */
export type Target = { kind: 'secrets' | 'containers'; id: string }

const REFERENCE = /^\S*\/(secrets|containers)\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/?$/i

/** @returns null unless it refers to a secret or container */
export function readReference(ref: string): Target | null {
  const [, kind = '', id = ''] = REFERENCE.exec(ref) ?? []
  if (id === '') return null
  return { kind: kind.toLowerCase() === 'secrets' ? 'secrets' : 'containers', id: id.toLowerCase() }
}

/** The path of its record in the key manager's API. */
export const pathOf = ({ kind, id }: Target): string => `/v1/${kind}/${id}`

/** References of one request, by what they must lead to. May repeat. */
export type RequestedReferences = {
  /** To certificates with their private keys. */
  certificates: readonly string[]
  /** To CA certificates. */
  authorities: readonly string[]
  /** To revocation lists, each with the reference to the CA that must have signed it. */
  revocationLists: readonly { ref: string; authority: string }[]
}

/** Every reference of a request, each once. */
export const allReferences = ({ certificates, authorities, revocationLists }: RequestedReferences): string[] => [
  ...new Set([...certificates, ...authorities, ...revocationLists.map(({ ref }) => ref)]),
]
