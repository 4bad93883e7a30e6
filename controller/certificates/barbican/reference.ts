/** What a reference names. Its host is ignored: it could be anyone's. */
export type Target = { kind: 'secrets' | 'containers'; id: string }

const REFERENCE = /^\S*\/(secrets|containers)\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/?$/i

/** @returns null unless it refers to a secret or container */
export function readReference(ref: string): Target | null {
  const [, kind = '', id = ''] = REFERENCE.exec(ref) ?? []
  if (id === '') return null
  return { kind: kind.toLowerCase() === 'secrets' ? 'secrets' : 'containers', id: id.toLowerCase() }
}

export const pathOf = ({ kind, id }: Target): string => `/v1/${kind}/${id}`
