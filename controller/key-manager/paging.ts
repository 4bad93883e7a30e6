import type { Configuration } from '../config/schema.js'

export type Page = { limit: number; offset: number }

/** Largest offset that PostgreSQL takes without complaint. */
const MOST_ROWS = 2_147_483_647

/** What a list is asked for; nothing here is ever an error: what makes no sense counts as not given. */
export function pageOf(
  query: URLSearchParams,
  config: Pick<Configuration['key_manager'], 'default_limit_paging' | 'max_limit_paging'>,
): Page {
  const limit = integerIn(query.get('limit')) ?? config.default_limit_paging
  const offset = integerIn(query.get('offset')) ?? 0
  return {
    limit: Math.min(Math.max(limit, 1), config.max_limit_paging),
    offset: Math.min(Math.max(offset, 0), MOST_ROWS),
  }
}

function integerIn(text: string | null): number | null {
  return text !== null && /^\s*[+-]?\d{1,15}\s*$/.test(text) ? Number(text) : null
}

/**
 * The JSON text of a page of a list, with links to the pages beside it.
 * @param items JSON text of the array
 * @param url of the list, without a query
 */
export function pageJson(
  key: string,
  items: string,
  total: number,
  { page, query, url }: { page: Page; query: URLSearchParams; url: string },
): string {
  const href = (offset: number) => {
    const other = [...query].filter(([name]) => name !== 'limit' && name !== 'offset')
    const all = new URLSearchParams([['limit', String(page.limit)], ['offset', String(offset)], ...other])
    return JSON.stringify(`${url}?${all}`)
  }
  const isEmpty = items === '[]'
  const previous = page.offset > 0 && !isEmpty ? `,"previous":${href(Math.max(0, page.offset - page.limit))}` : ''
  const next = total > page.offset + page.limit && !isEmpty ? `,"next":${href(page.offset + page.limit)}` : ''
  return `{${JSON.stringify(key)}:${items},"total":${total}${previous}${next}}`
}
