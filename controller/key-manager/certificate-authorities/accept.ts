/** Ranges of an Accept header that admit something; all of it when there is none. */
const rangesOf = (accept: string): string[] =>
  accept
    .split(',')
    .filter(range => !/;\s*q=0(\.0*)?\s*(;|$)/i.test(range))
    .map(range => (range.split(';')[0] ?? '').trim().toLowerCase())
    .filter(range => range !== '')

/**
 * The first of the types that an Accept header admits, whatever weights it gives; null when it admits none of them. Pure.
 * @param accept '' when there is no such header
 */
export function acceptedType<Type extends string>(accept: string, types: readonly [Type, ...Type[]]): Type | null {
  const ranges = rangesOf(accept)
  if (ranges.length === 0) return types[0]
  const admits = (type: string) =>
    ranges.includes('*/*') || ranges.includes(type) || ranges.includes(`${type.split('/')[0]}/*`)
  return types.find(admits) ?? null
}
