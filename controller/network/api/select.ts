import type { Knex } from 'knex'
import { type Page, pageOf } from '../../api/paging.js'
import type { Caller } from '../../identity/caller.js'
import { normaliseAddress, parseCidr } from '../addresses.js'
import { type Condition, isUuid } from '../visibility.js'
import { type Listing, parseBoolean } from './listing.js'
import { invalidRequest, missing, type Singular } from './neutron-error.js'

type Kind = 'uuid' | 'text' | 'boolean' | 'integer' | 'address' | 'cidr' | 'mac'

/** An attribute by which lists can be filtered and sorted: trusted SQL, or a value that is the same for all. */
export type Column = { sql: string; kind: Kind } | { constant: string | null }

/** How the rows of one resource are read. */
export type Source = {
  kind: Singular
  /** Trusted SQL: columns and tables; the alias of the resource's own table is its kind. */
  select: string
  from: string
  columns: Readonly<Record<string, Column>>
  /** Filters that are more than a comparison with one column. */
  filters: Readonly<Record<string, (values: readonly string[]) => Condition>>
  visible: (caller: Caller) => Condition
}

const NOTHING: Condition = { sql: 'false', bindings: [] }

const has = <Value>(record: Readonly<Record<string, Value>>, key: string): boolean => Object.hasOwn(record, key)

/** One row that the caller may see; null when there is none. @param lock holds the row until the transaction ends */
export async function selectOne<Row>(
  database: Knex,
  source: Source,
  caller: Caller,
  id: string,
  lock = false,
): Promise<Row | null> {
  if (!isUuid(id)) return null
  const visible = source.visible(caller)
  const { rows } = await database.raw(
    `SELECT ${source.select} FROM ${source.from} WHERE ${source.kind}.id = ? AND ${visible.sql}
     ${lock ? `FOR UPDATE OF ${source.kind}` : ''}`,
    [id, ...visible.bindings],
  )
  return (rows as Row[])[0] ?? null
}

/** The rows that the caller may see and that the listing asks for. @throws NeutronError 400, and 404 for an unknown marker */
export async function selectPage<Row>(
  database: Knex,
  source: Source,
  caller: Caller,
  listing: Listing,
): Promise<Page<Row>> {
  const { limit, marker } = listing
  const conditions = [source.visible(caller), ...[...listing.filters].map(filter => conditionOf(source, ...filter))]
  const order = orderOf(source, listing)
  if (marker !== null) {
    if ((await selectOne(database, source, caller, marker)) === null) throw missing(source.kind, marker)
    conditions.push(afterMarker(source, order, marker))
  }
  const { rows } = await database.raw(
    `SELECT ${source.select} FROM ${source.from}
      WHERE ${conditions.map(condition => condition.sql).join(' AND ')}
      ORDER BY ${order.map(({ sql, descending }) => `${sql} ${descending ? 'DESC' : 'ASC'}`).join(', ')}
      ${limit === null ? '' : 'LIMIT ?'}`,
    [...conditions.flatMap(condition => condition.bindings), ...(limit === null ? [] : [limit + 1])],
  )
  return pageOf(rows as Row[], listing)
}

type Order = { sql: string; descending: boolean }[]

function orderOf({ kind, columns }: Source, { sorts, reverse }: Listing): Order {
  const wanted = sorts.map(({ key, descending }) => {
    const column = has(columns, key) ? columns[key]! : null
    if (column === null) throw invalidRequest(`${key} is invalid attribute for sort_keys`)
    // A column that may be null could not be compared with the marker's.
    return { sql: 'sql' in column ? `coalesce(${column.sql}::text, '')` : `''`, descending }
  })
  const byCreation = sorts.length === 0 ? [{ sql: `${kind}.created_at`, descending: false }] : []
  return [...wanted, ...byCreation, { sql: `${kind}.id`, descending: false }].map(({ sql, descending }) => ({
    sql,
    descending: descending !== reverse,
  }))
}

/** Rows that come after the marker's row in this order. */
function afterMarker(source: Source, order: Order, marker: string): Condition {
  const markersOwn = (sql: string) => `(SELECT ${sql} FROM ${source.from} WHERE ${source.kind}.id = ?)`
  const alternatives = order.map(({ sql, descending }, depth) => {
    const equal = order.slice(0, depth).map(earlier => `${earlier.sql} = ${markersOwn(earlier.sql)}`)
    return [...equal, `${sql} ${descending ? '<' : '>'} ${markersOwn(sql)}`].join(' AND ')
  })
  const count = (order.length * (order.length + 1)) / 2
  return { sql: `(${alternatives.map(one => `(${one})`).join(' OR ')})`, bindings: Array(count).fill(marker) }
}

function conditionOf(source: Source, name: string, values: readonly string[]): Condition {
  if (has(source.filters, name)) return source.filters[name]!(values)
  if (!has(source.columns, name)) throw invalidRequest(`[${JSON.stringify(name)}] is invalid attribute for filtering`)
  const column = source.columns[name]!
  if ('constant' in column) {
    return values.some(value => value.toLowerCase() === String(column.constant ?? '').toLowerCase())
      ? { sql: 'true', bindings: [] }
      : NOTHING
  }
  return oneOf(column.sql, column.kind, values)
}

/** Values that cannot be an attribute's value match nothing; a boolean or a number must be one. */
function oneOf(sql: string, kind: Kind, values: readonly string[]): Condition {
  switch (kind) {
    case 'boolean':
      return { sql: `${sql} = ANY(?::boolean[])`, bindings: [values.map(parseBoolean)] }
    case 'integer': {
      const wrong = values.find(value => !/^-?\d{1,9}$/.test(value))
      if (wrong !== undefined) throw invalidRequest(`'${wrong}' is not an integer`)
      return { sql: `${sql} = ANY(?::integer[])`, bindings: [values.map(Number)] }
    }
    case 'uuid':
      return { sql: `${sql} = ANY(?::uuid[])`, bindings: [values.filter(isUuid)] }
    case 'text':
      return { sql: `${sql} = ANY(?::text[])`, bindings: [values.filter(isStorable)] }
    case 'address':
      return { sql: `${sql} = ANY(?::inet[])`, bindings: [values.map(normaliseAddress).filter(isPresent)] }
    case 'cidr':
      return {
        sql: `${sql} = ANY(?::cidr[])`,
        bindings: [values.map(value => parseCidr(value)?.text).filter(isPresent)],
      }
    case 'mac':
      return { sql: `${sql} = ANY(?::macaddr[])`, bindings: [values.filter(value => MAC_ADDRESS.test(value))] }
  }
}

const isPresent = <Value>(value: Value | null | undefined): value is Value => value !== null && value !== undefined

/** PostgreSQL stores every text but one that holds a NUL character. */
export const isStorable = (text: string): boolean => !text.includes('\0')

export const MAC_ADDRESS = /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i

/** The four tag filters, each with comma-separated tags. */
export function tagFilters(kind: Singular): Source['filters'] {
  const compare =
    (operator: '@>' | '&&', negated: boolean) =>
    (values: readonly string[]): Condition => ({
      sql: `${negated ? 'NOT ' : ''}(${kind}.tags ${operator} ?::text[])`,
      bindings: [values.flatMap(value => value.split(',')).filter(isStorable)],
    })
  return {
    tags: compare('@>', false),
    'tags-any': compare('&&', false),
    'not-tags': compare('@>', true),
    'not-tags-any': compare('&&', true),
  }
}
