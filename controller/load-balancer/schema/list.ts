import type { Database } from '../../database/connection.js'
import { type ListQuery, type SortKey, unknownMarker } from './list-query.js'
import type { Resource } from './resource.js'
import { allOf, type Condition, condition, type Presented, selectObjects } from './select.js'

export type Page = { objects: Presented[]; links: { rel: 'previous' | 'next'; href: string }[] }

/**
 * One page of a list, in one statement whose cost does not grow with the pages before it (keyset paging).
 * @param scope what the caller may see at all; a marker outside it is unknown
 * @param url the request's URL without its query, for the links
 * @throws ApiError 400 when the marker is unknown
 */
export async function listPage(
  database: Database,
  resource: Resource,
  { query, scope, url }: { query: ListQuery; scope: Condition; url: string },
): Promise<Page> {
  const { limit, marker, reverse } = query
  const order = [
    ...query.sort,
    { sql: 'o.created_at', descending: false },
    { sql: keyOf(resource), descending: false },
  ].map(key => ({ ...key, descending: key.descending !== reverse }))
  const start = marker === null ? [] : [after(resource, order, marker, scope)]
  // One row more than the page tells whether another page follows.
  const rows = await selectObjects(database, resource, {
    where: allOf([scope, ...query.filters, ...start]),
    order: order
      .map(({ sql, descending }) => `${sql} ${descending ? 'DESC NULLS FIRST' : 'ASC NULLS LAST'}`)
      .join(', '),
    limit: limit === null ? null : limit + 1,
    fields: query.fields,
  })
  if (rows.length === 0 && marker !== null) await requireMarker(database, resource, marker, scope)
  const more = limit !== null && rows.length > limit
  const objects = more ? rows.slice(0, limit) : rows
  if (reverse) objects.reverse()
  // After a full page without a link openstacksdk asks on from the last id, and where there is none it begins anew, without end.
  const leadsOn = more || (resource.key.column !== 'id' && objects.length === limit)
  return { objects, links: linksOf(query, objects, { more, leadsOn }, url) }
}

/** Rows that come after the marker's in the given order; nulls count as greater than every value. */
function after(resource: Resource, order: readonly SortKey[], marker: string, scope: Condition): Condition {
  const key = keyOf(resource)
  const ofMarker = (sql: string) =>
    condition(`(SELECT ${sql} FROM ${resource.source} WHERE ${key} = ? AND ${scope.sql})`, marker, ...scope.bindings)
  if (order.length === 2) {
    // A row comparison starts in the index right at the marker.
    const row = ofMarker(`o.created_at, ${key}`)
    const operator = order[0]?.descending === true ? '<' : '>'
    return condition(`(o.created_at, ${key}) ${operator} ${row.sql}`, ...row.bindings)
  }
  const later = order.reduceRight<Condition>((rest, { sql, descending }) => {
    const value = ofMarker(sql)
    const beyond = descending
      ? `${sql} < ${value.sql} OR (${sql} IS NOT NULL AND ${value.sql} IS NULL)`
      : `${sql} > ${value.sql} OR (${sql} IS NULL AND ${value.sql} IS NOT NULL)`
    return condition(
      `${beyond} OR (${sql} IS NOT DISTINCT FROM ${value.sql} AND (${rest.sql}))`,
      ...[value, value, value].flatMap(({ bindings }) => bindings),
      ...rest.bindings,
    )
  }, condition('false'))
  // A marker that is not there reads null, which would have a place in the order.
  return allOf([condition(`EXISTS ${ofMarker('1').sql}`, ...ofMarker('1').bindings), later])
}

const keyOf = ({ key }: Resource): string => `o.${key.column}`

async function requireMarker(database: Database, resource: Resource, marker: string, scope: Condition): Promise<void> {
  const { rows } = await database.raw(
    `SELECT 1 FROM ${resource.source} WHERE ${keyOf(resource)} = ? AND ${scope.sql}`,
    [marker, ...scope.bindings],
  )
  if (rows.length === 0) throw unknownMarker(marker)
}

function linksOf(
  { limit, marker, reverse, carried }: ListQuery,
  objects: Presented[],
  { more, leadsOn }: { more: boolean; leadsOn: boolean },
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
  if (reverse || leadsOn) links.push({ rel: 'next', href: href(last, false) })
  return links
}
