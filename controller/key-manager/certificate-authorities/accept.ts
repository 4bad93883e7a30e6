/** Media ranges of an Accept header, without those of weight 0. */
const acceptedRanges = (accept: string): string[] =>
  accept
    .split(',')
    .filter(range => !/;\s*q=0(\.0*)?\s*(;|$)/i.test(range))
    .map(range => (range.split(';')[0] ?? '').trim().toLowerCase())
    .filter(range => range !== '')

/**
 * The first of `types` that an Accept header accepts, ignoring other weights; null if it accepts none. Pure.
 * @param accept '' if there is no such header, which accepts every type
 */
export function acceptedType<Type extends string>(accept: string, types: readonly [Type, ...Type[]]): Type | null {
  const ranges = acceptedRanges(accept)
  if (ranges.length === 0) return types[0]
  const accepts = (type: string) =>
    ranges.includes('*/*') || ranges.includes(type) || ranges.includes(`${type.split('/')[0]}/*`)
  return types.find(accepts) ?? null
}
