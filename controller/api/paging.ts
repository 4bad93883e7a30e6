/** A page of a list in the requested order, and whether pages follow and precede it. */
export type Page<Item> = { items: Item[]; hasNext: boolean; hasPrevious: boolean }

/** A client's request for a page, which begins after the marker. Without a limit the page holds everything. */
export type PageRequest = { limit: number | null; marker: string | null; reverse: boolean }

/**
 * Makes a page from rows that were read from the marker on, in reverse order for a reverse page.
 * @param rows up to one more than the limit
 */
export function pageOf<Item>(rows: readonly Item[], { limit, marker, reverse }: PageRequest): Page<Item> {
  const isCut = limit !== null && rows.length > limit
  const items = isCut ? rows.slice(0, limit) : [...rows]
  if (!reverse) return { items, hasNext: isCut, hasPrevious: marker !== null }
  return { items: items.reverse(), hasNext: marker !== null, hasPrevious: isCut }
}

export type PageLink = { rel: 'next' | 'previous'; href: string }

/**
 * Links to the pages before and after a page with a limit. An empty page has no links: it holds no object to use as
 * marker.
 * @param url of the list, without a query
 * @param query parameters that the links repeat, except `marker` and `page_reverse`
 * @param order in which the API lists the links
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
