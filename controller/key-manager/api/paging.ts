import type { Knex } from 'knex'
import type { Parameter } from '../../api/schema.js'
import { one } from '../../database/query.js'
import { type Fragment, identifier, sql, trusted, unprepared } from '../../database/sql.js'
import type { KeyManagerSettings } from '../options.js'

export type Page = { limit: number; offset: number }

const PAGE_NAMES: ReadonlySet<string> = new Set(['limit', 'offset', 'marker'])

/** A query parameter by which a list is filtered. */
export const filter = (name: string, description: string): Parameter => ({
  name,
  in: 'query',
  description,
  schema: { type: 'string' },
})

/** The query parameters of every list. */
export const PAGE_PARAMETERS: readonly Parameter[] = [
  { name: 'limit', in: 'query', description: 'Most objects on the page.', schema: { type: 'integer', minimum: 1 } },
  {
    name: 'offset',
    in: 'query',
    description: 'How many objects come before the page.',
    schema: { type: 'integer', minimum: 0 },
  },
]

/** Largest offset that is asked of PostgreSQL. */
const MOST_ROWS = 2_147_483_647

/**
 * What a list is asked for; nothing here is ever an error: what makes no sense counts as not given, and what is too much as the most. openstacksdk,
 * when it was given a limit, asks once more after the last page, in the same words and with the last object as `marker`: it gets what follows.
 */
export function pageOf(
  query: URLSearchParams,
  config: Pick<KeyManagerSettings, 'default_limit_paging' | 'max_limit_paging'>,
): Page {
  const limit = Math.min(
    Math.max(integerIn(query.get('limit')) ?? config.default_limit_paging, 1),
    config.max_limit_paging,
  )
  const offset = Math.max(integerIn(query.get('offset')) ?? 0, 0) + (query.get('marker') ? limit : 0)
  return { limit, offset: Math.min(offset, MOST_ROWS) }
}

/** However many digits there are: more than a number holds become Infinity. */
export function integerIn(text: string | null): number | null {
  return text !== null && /^\s*[+-]?\d+\s*$/.test(text) ? Number(text) : null
}

/** What a list shows, as SQL over one table. */
export type Selection = {
  /** Table and alias, as `secret s`; its column `id` tells rows apart. */
  table: string
  where: Fragment
  /** As `s.created_at, s.id`. */
  order: Fragment
  /** Text of the JSON of one row; `base.url` is the root of the API. */
  json: Fragment
}

/**
 * Reads one page of a list and how many rows there are in all, in one statement. Rows before the page are passed over in the index that the
 * order goes by, when there is one.
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
    // What is filtered and sorted by varies with requests.
    unprepared(sql<{ items: string; total: number }>`
      SELECT (SELECT count(*) FROM ${from} WHERE ${where}) AS total,
             (SELECT coalesce('[' || string_agg(${json}, ',' ORDER BY ${order}) || ']', '[]')
                FROM (SELECT ${id} FROM ${from} WHERE ${where} ORDER BY ${order} LIMIT ${page.limit} OFFSET ${page.offset}) page
                JOIN ${from} ON ${id} = page.id CROSS JOIN (SELECT ${base}::text AS url) base) AS items`),
  )
}

/**
 * The JSON text of a page of a list, with links to the pages beside it, which keep what else was asked for.
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
