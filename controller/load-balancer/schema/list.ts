import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { and, type Fragment, sql, trusted, unprepared } from '../../database/sql.js'
import { type ListQuery, type SortKey, unknownMarker } from './list-query.js'
import type { Resource } from './resource.js'
import { type Presented, selectObjects } from './select.js'

export type Page = { objects: Presented[]; links: { rel: 'previous' | 'next'; href: string }[] }

/**
 * Reads one page of a list in one statement, whose cost does not grow with the number of earlier pages (keyset
 * pagination).
 * @param scope SQL of the rows that the caller may see; a marker outside it is unknown
 * @param url URL of the request without query, for links
 * @throws ApiError 400 when the marker is unknown
 */
export async function listPage(
  database: Database,
  resource: Resource,
  { query, scope, url }: { query: ListQuery; scope: Fragment; url: string },
): Promise<Page> {
  const { limit, marker, reverse } = query
  const order = [...query.sort, ...defaultOrder(resource)].map(key => ({
    ...key,
    descending: key.descending !== reverse,
  }))
  const start = marker === null ? [] : [after(resource, order, marker, scope)]
  const where = and([scope, ...query.filters, ...start])
  // One extra row shows whether another page follows.
  const rows = await selectObjects(database, resource, {
    where: query.filters.length + query.sort.length === 0 ? where : unprepared(where),
    order: trusted(order.map(key => `${key.sql} ${key.descending ? 'DESC NULLS FIRST' : 'ASC NULLS LAST'}`).join(', ')),
    limit: limit === null ? null : limit + 1,
    fields: query.fields,
  })
  if (rows.length === 0 && marker !== null) await requireMarker(database, resource, marker, scope)
  const more = limit !== null && rows.length > limit
  const objects = more ? rows.slice(0, limit) : rows
  if (reverse) objects.reverse()
  // After a full page without a next link, openstacksdk continues from the last id. Objects without an id
  // would make it start over forever.
  const hasNextLink = more || (resource.key.column !== 'id' && objects.length === limit)
  return { objects, links: linksOf(query, objects, { more, hasNextLink }, url) }
}

/** SQL: the row comes after the marker in the given order. Nulls sort after every value. */
function after(resource: Resource, order: readonly SortKey[], marker: string, scope: Fragment): Fragment {
  const key = keyOf(resource)
  const ofMarker = (value: string) =>
    sql`(SELECT ${trusted(`${value} FROM ${resource.source} WHERE ${key}`)} = ${marker} AND ${scope})`
  const columns = defaultOrder(resource).map(({ sql }) => sql)
  if (order.length === columns.length) {
    // With a row comparison, the index scan starts at the marker.
    const operator = order[0]?.descending === true ? '<' : '>'
    const own = columns.join(', ')
    return sql`${trusted(`(${own}) ${operator}`)} ${ofMarker(own)}`
  }
  const later = order.reduceRight<Fragment>((rest, { sql: column, descending }) => {
    const [own, value] = [trusted(column), ofMarker(column)]
    const beyond = descending
      ? sql`${own} < ${value} OR (${own} IS NOT NULL AND ${value} IS NULL)`
      : sql`${own} > ${value} OR (${own} IS NULL AND ${value} IS NOT NULL)`
    return sql`${beyond} OR (${own} IS NOT DISTINCT FROM ${value} AND (${rest}))`
  }, sql`false`)
  // A missing marker reads null, which would have a position in the order.
  return and([sql`EXISTS ${ofMarker('1')}`, later])
}

/** As in Octavia: by creation, and by key alone if responses have no creation time. */
const defaultOrder = (resource: Resource): SortKey[] =>
  [...(Object.hasOwn(resource.attributes, 'created_at') ? ['o.created_at'] : []), keyOf(resource)].map(sql => ({
    sql,
    descending: false,
  }))

const keyOf = ({ key }: Resource): string => `o.${key.column}`

async function requireMarker(database: Database, resource: Resource, marker: string, scope: Fragment): Promise<void> {
  const found = await maybeOne(
    database,
    sql`SELECT 1 FROM ${trusted(`${resource.source} WHERE ${keyOf(resource)}`)} = ${marker} AND ${scope}`,
  )
  if (found === undefined) throw unknownMarker(marker)
}

function linksOf(
  { limit, marker, reverse, carried }: ListQuery,
  objects: Presented[],
  { more, hasNextLink }: { more: boolean; hasNextLink: boolean },
  url: string,
): Page['links'] {
  const first = objects[0]
  const last = objects.at(-1)
  if (limit === null || first === undefined || last === undefined) return []
  const href = (from: Presented, backwards: boolean) => {
    const query = new URLSearchParams([['limit', String(limit)], ...carried, ['marker', from.id]])
    if (backwards) query.append('page_reverse', 'True')
    return `${url}?${query}`
  }
  const links: Page['links'] = []
  if (reverse ? more : marker !== null) links.push({ rel: 'previous', href: href(first, true) })
  if (reverse || hasNextLink) links.push({ rel: 'next', href: href(last, false) })
  return links
}
