import { badRequest } from '../http/errors.js'

/** The arguments of a query string, each with its values in their order. */
export function argumentsOf(query: URLSearchParams): ReadonlyMap<string, readonly string[]> {
  const args = new Map<string, string[]>()
  for (const [name, value] of query) {
    const values = args.get(name)
    if (values === undefined) args.set(name, [value])
    else values.push(value)
  }
  return args
}

/**
 * Each key costs a comparison per row of the list and, for a page after a marker, a condition on all keys
 * before it.
 */
const MAX_SORT_KEYS = 10

/** @throws ApiError 400 for too many sort keys, repeated ones included */
export function requireFewSortKeys(keys: readonly unknown[]): void {
  if (keys.length > MAX_SORT_KEYS) throw badRequest(`A list can be sorted by at most ${MAX_SORT_KEYS} keys.`)
}
