import type { Knex } from 'knex'
import type { Parameter } from '../../api/schema.js'
import { one } from '../../database/query.js'
import { type Fragment, identifier, sql, trusted, unprepared } from '../../database/sql.js'
import type { KeyManagerSettings } from '../options.js'

export type Page = { limit: number; offset: number }

const PAGE_NAMES: ReadonlySet<string> = new Set(['limit', 'offset', 'marker'])

/** A query parameter that filters a list. */
export const filter = (name: string, description: string): Parameter => ({
  name,
  in: 'query',
  description,
  schema: { type: 'string' },
})

/** The query parameters of every list. */
export const PAGE_PARAMETERS: readonly Parameter[] = [
  { name: 'limit', in: 'query', description: 'Maximum objects on the page.', schema: { type: 'integer', minimum: 1 } },
  {
    name: 'offset',
    in: 'query',
    description: 'Number of objects to skip before the page.',
    schema: { type: 'integer', minimum: 0 },
  },
]

/** The largest offset to ask PostgreSQL for. */
const MAX_OFFSET = 2_147_483_647

/**
 * The requested page. Never an error: invalid values count as missing, and large ones as the maximum. openstacksdk
 * with a limit repeats its request after the last page, with the last object as `marker`, and gets what follows.
 */
export function parsePage(
  query: URLSearchParams,
  config: Pick<KeyManagerSettings, 'default_limit_paging' | 'max_limit_paging'>,
): Page {
  const limit = Math.min(
    Math.max(parseInteger(query.get('limit')) ?? config.default_limit_paging, 1),
    config.max_limit_paging,
  )
  const offset = Math.max(parseInteger(query.get('offset')) ?? 0, 0) + (query.get('marker') ? limit : 0)
  return { limit, offset: Math.min(offset, MAX_OFFSET) }
}

/** Any number of digits; too many give Infinity. */
export function parseInteger(text: string | null): number | null {
  return text !== null && /^\s*[+-]?\d+\s*$/.test(text) ? Number(text) : null
}

/** The rows of a list, as SQL over one table. */
export type Selection = {
  /** Table and alias, such as `secret s`; its column `id` is unique. */
  table: string
  where: Fragment
  /** Such as `s.created_at, s.id`. */
  order: Fragment
  /** One row as JSON text; `base.url` is the root of the API. */
  json: Fragment
}

/**
 * Reads one page of a list and the total number of rows, in one statement. Skips the rows before the page in an
 * index, if the order has one.
 * @param base URL of the root of the API, for references
 */
export async function readPage(
  database: Knex,
  { table, where, order, json }: Selection,
  page: Page,
  base: string,
): Promise<{ items: string; total: number }> {
  const id = identifier(table.split(' ').at(-1) ?? '', 'id')
  const from = trusted(table)
  return one(
    database,
    // Filters and sort keys vary by request.
    unprepared(sql<{ items: string; total: number }>`
      SELECT (SELECT count(*) FROM ${from} WHERE ${where}) AS total,
             (SELECT coalesce('[' || string_agg(${json}, ',' ORDER BY ${order}) || ']', '[]')
                FROM (SELECT ${id} FROM ${from} WHERE ${where} ORDER BY ${order} LIMIT ${page.limit} OFFSET ${page.offset}) page
                JOIN ${from} ON ${id} = page.id CROSS JOIN (SELECT ${base}::text AS url) base) AS items`),
  )
}

/**
 * A page of a list as JSON text. Its links to the previous and next page keep the other query parameters.
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
    const other = [...query].filter(([name]) => !PAGE_NAMES.has(name))
    const all = new URLSearchParams([['limit', String(page.limit)], ['offset', String(offset)], ...other])
    return JSON.stringify(`${url}?${all}`)
  }
  const isEmpty = items === '[]'
  const previous = page.offset > 0 && !isEmpty ? `,"previous":${href(Math.max(0, page.offset - page.limit))}` : ''
  const next = total > page.offset + page.limit && !isEmpty ? `,"next":${href(page.offset + page.limit)}` : ''
  return `{${JSON.stringify(key)}:${items},"total":${total}${previous}${next}}`
}
