import { badRequest } from '../http/errors.js'

/** The arguments of a query string, each with its values in the order in which they stand. */
export function argumentsOf(query: URLSearchParams): ReadonlyMap<string, readonly string[]> {
  const args = new Map<string, string[]>()
  for (const [name, value] of query) {
    const values = args.get(name)
    if (values === undefined) args.set(name, [value])
    else values.push(value)
  }
  return args
}

/** Each key costs every row of the list a comparison, and a page that begins at a marker a condition with all keys before it. */
const MOST_SORT_KEYS = 10

/** @throws ApiError 400 when a list is to be sorted by more keys than anybody needs, repeated ones included */
export function requireFewSortKeys(keys: readonly unknown[]): void {
  if (keys.length > MOST_SORT_KEYS) throw badRequest(`A list can be sorted by at most ${MOST_SORT_KEYS} keys.`)
}
