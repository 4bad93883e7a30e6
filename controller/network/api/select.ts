import type { Knex } from 'knex'
import { type Page, pageOf } from '../../api/paging.js'
import { many, maybeOne } from '../../database/query.js'
import { and, type Fragment, identifier, join, or, sql, trusted, unprepared } from '../../database/sql.js'
import type { Caller } from '../../identity/caller.js'
import { normaliseAddress, parseCidr } from '../addresses.js'
import { isAdmin, isUuid } from '../visibility.js'
import type { Singular } from './kinds.js'
import { type Listing, parseBoolean } from './listing.js'
import { invalidRequest, notFound } from './neutron-error.js'

type Kind = 'uuid' | 'text' | 'boolean' | 'integer' | 'address' | 'cidr' | 'mac'

/**
 * An attribute to filter and sort lists by: an SQL expression, or a value that all rows share. Only administrators see
 * the values of an attribute with `hidden`; for others, it is null.
 */
export type Column = { sql: Fragment; kind: Kind; hidden?: true } | { constant: string | null }

/** How to read the rows of one kind of resource. */
export type Source<Row = unknown> = {
  kind: Singular
  table: string
  /** Columns and tables. The alias of the resource's own table is its kind. */
  select: Fragment<Row>
  from: Fragment
  columns: Readonly<Record<string, Column>>
  /** Filters that do more than compare one column. */
  filters: Readonly<Record<string, (values: readonly string[]) => Fragment>>
  visible: (caller: Caller) => Fragment
}

const has = <Value>(record: Readonly<Record<string, Value>>, key: string): boolean => Object.hasOwn(record, key)

/** One row; null if missing or not visible to the caller. @param lock hold it until the transaction ends */
export async function selectOne<Row>(
  database: Knex,
  { kind, select, from, visible }: Source<Row>,
  caller: Caller,
  id: string,
  lock = false,
): Promise<Row | null> {
  if (!isUuid(id)) return null
  const locked = lock ? sql`FOR UPDATE OF ${identifier(kind)}` : sql``
  const row = await maybeOne(
    database,
    sql<Row>`SELECT ${select} FROM ${from} WHERE ${identifier(kind, 'id')} = ${id} AND ${visible(caller)} ${locked}`,
  )
  return row ?? null
}

/** The visible rows that the listing requests. @throws NeutronError 400, or 404 for an unknown marker */
export async function selectPage<Row>(
  database: Knex,
  whole: Source<Row>,
  caller: Caller,
  listing: Listing,
): Promise<Page<Row>> {
  const source = isAdmin(caller) ? whole : withoutHidden(whole)
  const { limit, marker } = listing
  const conditions = [source.visible(caller), ...[...listing.filters].map(filter => conditionOf(source, ...filter))]
  const order = orderOf(source, listing)
  if (marker !== null) {
    if ((await selectOne(database, source, caller, marker)) === null) throw notFound(source.kind, marker)
    conditions.push(afterMarker(source, order, marker))
  }
  const keys = order.map(({ key, descending }) => sql`${key} ${trusted(descending ? 'DESC' : 'ASC')}`)
  const rows = await many(
    database,
    unprepared(sql<Row>`
      SELECT ${source.select} FROM ${source.from} WHERE ${and(conditions)} ORDER BY ${join(keys)}
      ${limit === null ? sql`` : sql`LIMIT ${limit + 1}`}`),
  )
  return pageOf(rows, listing)
}

const withoutHidden = <Row>(source: Source<Row>): Source<Row> => ({
  ...source,
  columns: Object.fromEntries(
    Object.entries(source.columns).map(([name, column]) => [name, 'hidden' in column ? { constant: null } : column]),
  ),
})

type Order = { key: Fragment; descending: boolean }[]

function orderOf({ kind, columns }: Source, { sorts, reverse }: Listing): Order {
  const desired = sorts.flatMap(({ key, descending }) => {
    const column = has(columns, key) ? columns[key]! : null
    if (column === null) throw invalidRequest(`${key} is invalid attribute for sort_keys`)
    // What all rows share orders none of them.
    return 'sql' in column ? [{ key: sortKey(column), descending }] : []
  })
  const byCreation = sorts.length === 0 ? [{ key: identifier(kind, 'created_at'), descending: false }] : []
  return [...desired, ...byCreation, { key: identifier(kind, 'id'), descending: false }].map(({ key, descending }) => ({
    key,
    descending: descending !== reverse,
  }))
}

/** A null could not be compared with the marker's value. */
const sortKey = ({ sql: value, kind }: Extract<Column, { sql: Fragment }>): Fragment =>
  kind === 'integer' ? sql`coalesce(${value}, -1)` : sql`coalesce(${value}::text, '')`

/** The rows after the marker's row in this order. */
function afterMarker({ kind, from }: Source, order: Order, marker: string): Fragment {
  const markerValue = (key: Fragment) => sql`(SELECT ${key} FROM ${from} WHERE ${identifier(kind, 'id')} = ${marker})`
  const alternatives = order.map(({ key, descending }, depth) => {
    const equal = order.slice(0, depth).map(earlier => sql`${earlier.key} = ${markerValue(earlier.key)}`)
    return and([...equal, sql`${key} ${trusted(descending ? '<' : '>')} ${markerValue(key)}`])
  })
  return or(alternatives)
}

function conditionOf(source: Source, name: string, values: readonly string[]): Fragment {
  if (has(source.filters, name)) return source.filters[name]!(values)
  if (!has(source.columns, name)) throw invalidRequest(`[${JSON.stringify(name)}] is invalid attribute for filtering`)
  const column = source.columns[name]!
  if ('constant' in column) {
    return values.some(value => value.toLowerCase() === String(column.constant ?? '').toLowerCase())
      ? sql`true`
      : sql`false`
  }
  return oneOf(column.sql, column.kind, values)
}

/** Malformed values match nothing, but a malformed boolean or integer is an error. @throws NeutronError 400 */
function oneOf(column: Fragment, kind: Kind, values: readonly string[]): Fragment {
  switch (kind) {
    case 'boolean':
      return sql`${column} = ANY(${values.map(parseBoolean)}::boolean[])`
    case 'integer': {
      const wrong = values.find(value => !/^-?\d{1,9}$/.test(value))
      if (wrong !== undefined) throw invalidRequest(`'${wrong}' is not an integer`)
      return sql`${column} = ANY(${values.map(Number)}::integer[])`
    }
    case 'uuid':
      return sql`${column} = ANY(${values.filter(isUuid)}::uuid[])`
    case 'text':
      return sql`${column} = ANY(${values.filter(isStorable)}::text[])`
    case 'address':
      return sql`${column} = ANY(${values.map(normaliseAddress).filter(isPresent)}::inet[])`
    case 'cidr':
      return sql`${column} = ANY(${values.map(value => parseCidr(value)?.text).filter(isPresent)}::cidr[])`
    case 'mac':
      return sql`${column} = ANY(${values.filter(value => MAC_ADDRESS.test(value))}::macaddr[])`
  }
}

const isPresent = <Value>(value: Value | null | undefined): value is Value => value !== null && value !== undefined

/** PostgreSQL cannot store a text with a NUL character. */
export const isStorable = (text: string): boolean => !text.includes('\0')

export const MAC_ADDRESS = /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i

/** The four tag filters. Each takes comma-separated tags. */
export function tagFilters(kind: Singular): Source['filters'] {
  const column = identifier(kind, 'tags')
  const given = (values: readonly string[]) =>
    sql`${values.flatMap(value => value.split(',')).filter(isStorable)}::text[]`
  return {
    tags: values => sql`${column} @> ${given(values)}`,
    'tags-any': values => sql`${column} && ${given(values)}`,
    'not-tags': values => sql`NOT (${column} @> ${given(values)})`,
    'not-tags-any': values => sql`NOT (${column} && ${given(values)})`,
  }
}
