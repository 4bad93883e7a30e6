/** A page of a list in the order that was asked for, and whether others follow and precede it. */
export type Page<Item> = { items: Item[]; hasNext: boolean; hasPrevious: boolean }

/** What a client asks of a list with pages that begin after a marker. A limit of null is everything. */
export type PageRequest = { limit: number | null; marker: string | null; reverse: boolean }

/**
 * The page that rows make which were read from the marker on, in the reverse order for a page that is asked for backwards.
 * @param rows one more than the limit, where there are that many
 */
export function pageOf<Item>(rows: readonly Item[], { limit, marker, reverse }: PageRequest): Page<Item> {
  const isCut = limit !== null && rows.length > limit
  const items = isCut ? rows.slice(0, limit) : [...rows]
  if (!reverse) return { items, hasNext: isCut, hasPrevious: marker !== null }
  return { items: items.reverse(), hasNext: marker !== null, hasPrevious: isCut }
}

export type PageLink = { rel: 'next' | 'previous'; href: string }

/**
 * Links to the pages beside one that has a limit. An empty page has none: there is no object that another page could begin after.
 * @param url of the list, without a query
 * @param query what the links repeat; they set `marker` and `page_reverse`
 * @param order in which the API names them
 */
export function pageLinks(
  { items, hasNext, hasPrevious }: Page<{ id: string }>,
  { url, query, order }: { url: string; query: URLSearchParams; order: readonly PageLink['rel'][] },
): PageLink[] {
  const [first, last] = [items[0], items.at(-1)]
  if (first === undefined || last === undefined) return []
  return order.flatMap(rel => {
    if (!(rel === 'next' ? hasNext : hasPrevious)) return []
    const parameters = new URLSearchParams(query)
    parameters.set('marker', rel === 'next' ? last.id : first.id)
    parameters.delete('page_reverse')
    if (rel === 'previous') parameters.set('page_reverse', 'True')
    return [{ rel, href: `${url}?${parameters}` }]
  })
}
