import { argumentsOf, requireFewSortKeys } from '../../api/query.js'
import { type Fragment, sql, trusted } from '../../database/sql.js'
import { badRequest } from '../../http/errors.js'
import type { LoadBalancerSettings } from '../options.js'
import { invalidInput } from './input.js'
import { canonicalKey, type Filter, type Resource, sqlOf } from './resource.js'
import { boolean, canonicalUuid, integer } from './values.js'

export type SortKey = { sql: string; descending: boolean }

/** The parsed query string of a list. */
export type ListQuery = {
  filters: Fragment[]
  /** Project of a project_id filter. */
  projectId: string | null
  fields: ReadonlySet<string> | null
  /** Empty for the default order. */
  sort: SortKey[]
  /** Null for no limit. */
  limit: number | null
  marker: string | null
  reverse: boolean
  /** Arguments that page links repeat. */
  carried: [name: string, value: string][]
}

const TAG_FILTERS: Readonly<Record<string, (tags: readonly string[]) => Fragment>> = {
  tags: tags => sql`o.tags @> ${tags}::text[]`,
  'tags-any': tags => sql`o.tags && ${tags}::text[]`,
  'not-tags': tags => sql`NOT o.tags @> ${tags}::text[]`,
  'not-tags-any': tags => sql`NOT o.tags && ${tags}::text[]`,
}

export type ListSettings = Pick<
  LoadBalancerSettings,
  'allow_pagination' | 'allow_sorting' | 'allow_filtering' | 'allow_field_selection' | 'pagination_max_limit'
>

/**
 * Parses the arguments of a list. Arguments that the operator has disabled are validated but ignored. Pure.
 * @throws ApiError 400 for an unknown, repeated or malformed argument
 */
export function parseListQuery(resource: Resource, queryString: string, settings: ListSettings): ListQuery {
  const query = readListQuery(resource, queryString, settings.pagination_max_limit)
  if (!settings.allow_filtering) query.filters = []
  if (!settings.allow_sorting) query.sort = []
  if (!settings.allow_field_selection) query.fields = null
  if (!settings.allow_pagination) Object.assign(query, { limit: null, marker: null, reverse: false })
  return query
}

function readListQuery(resource: Resource, queryString: string, maxLimit: number): ListQuery {
  const query: ListQuery = {
    filters: [],
    projectId: null,
    fields: null,
    sort: [],
    limit: maxLimit,
    marker: null,
    reverse: false,
    carried: [],
  }
  const args = argumentsIn(queryString)
  for (const [name, values] of args) {
    const value = values[0] ?? ''
    if (name === 'fields') query.fields = namesIn(values)
    else if (Object.hasOwn(TAG_FILTERS, name) && resource.tagged) {
      query.filters.push(TAG_FILTERS[name]!([...namesIn(values)]))
    } else if (name === 'sort' || name === 'sort_key' || name === 'sort_dir') continue
    else if (values.length > 1) throw ambiguousArgument(name, 'is given twice')
    else if (name === 'limit') query.limit = parseLimit(value, maxLimit)
    else if (name === 'marker') query.marker = parseMarker(resource, value)
    else if (name === 'page_reverse') query.reverse = parseBoolean(name, value)
    else {
      const filter = findFilter(resource, name)
      if (filter === null) throw ambiguousArgument(name, 'is unknown')
      query.filters.push(filterCondition(name, filter, value))
      if (name === 'project_id') query.projectId = value
    }
  }
  query.sort = parseSort(resource, args)
  query.carried = [...args]
    .filter(([name]) => !['limit', 'marker', 'page_reverse'].includes(name))
    .flatMap(([name, values]) => values.map((value): [string, string] => [name, value]))
  return query
}

/**
 * Parses the `fields` of a show, its only argument.
 * @param parent parent from the path; openstacksdk repeats it as an argument when it finds a member or rule
 */
export function parseShowQuery(
  queryString: string,
  settings: Pick<LoadBalancerSettings, 'allow_field_selection'>,
  parent?: { argument: string; id: string },
): ReadonlySet<string> | null {
  let fields: ReadonlySet<string> | null = null
  for (const [name, values] of argumentsIn(queryString)) {
    if (name === parent?.argument && values.every(value => value === parent.id)) continue
    if (name !== 'fields') throw unknownArgument(name)
    fields = namesIn(values)
  }
  return settings.allow_field_selection ? fields : null
}

/** The keys that `fields` names; null if it is not given. Other arguments are ignored. */
export function namedFields(queryString: string): ReadonlySet<string> | null {
  const values = argumentsIn(queryString).get('fields')
  return values === undefined ? null : namesIn(values)
}

/**
 * Parses the arguments of a route that accepts none, or only the given ones once each.
 * @param ignored accepted, any number of times, but not returned
 */
export function parseArguments(
  queryString: string,
  known: readonly string[] = [],
  ignored: readonly string[] = [],
): ReadonlyMap<string, string> {
  const result = new Map<string, string>()
  for (const [name, values] of argumentsIn(queryString)) {
    if (ignored.includes(name)) continue
    if (!known.includes(name)) throw unknownArgument(name)
    if (values.length > 1) throw ambiguousArgument(name, 'is given twice')
    result.set(name, values[0] ?? '')
  }
  return result
}

export function parseBoolean(name: string, value: string): boolean {
  const reading = boolean.read(value)
  if (!reading.ok) throw badRequest(invalidInput(name, value, reading.reason))
  return reading.value
}

const unknownArgument = (name: string) => badRequest(`Unknown argument: "${name.slice(0, 200)}"`)
const ambiguousArgument = (name: string, reason: 'is given twice' | 'is unknown') =>
  badRequest(`One or more arguments are either duplicate or invalid: ${name.slice(0, 200)} ${reason}.`)
const invalidPaging = (what: string, value: string) =>
  badRequest(`Supplied ${what} '${value.slice(0, 200)}' is not valid.`)

function argumentsIn(queryString: string): ReadonlyMap<string, readonly string[]> {
  const args = argumentsOf(new URLSearchParams(queryString))
  const texts = [...args].flatMap(([name, values]) => [name, ...values])
  if (texts.some(text => text.includes('\0'))) throw badRequest('An argument contains a NUL character.')
  return args
}

const namesIn = (values: readonly string[]): ReadonlySet<string> =>
  new Set(values.flatMap(value => value.split(',')).filter(name => name !== ''))

function findFilter(resource: Resource, name: string): Filter | null {
  if (Object.hasOwn(resource.filters, name)) return resource.filters[name]!
  if (!Object.hasOwn(resource.attributes, name)) return null
  const attribute = resource.attributes[name]!
  const sql = sqlOf(name, attribute)
  return sql === null || !attribute.filterable || attribute.kind === 'json' ? null : { kind: attribute.kind, sql }
}

function filterCondition(name: string, { kind, sql: text, narrow }: Filter, value: string): Fragment {
  const own = trusted(text)
  switch (kind) {
    case 'uuid': {
      // Clients also filter by words that are no UUIDs: the list is then empty, without an error.
      const id = canonicalUuid(value)
      if (id === null) return sql`false`
      return narrow === undefined ? sql`${own} = ${id}` : sql`${narrow(id)} AND ${own} = ${id}`
    }
    case 'integer': {
      const reading = integer(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER).read(value)
      if (!reading.ok) throw badRequest(invalidInput(name, value, reading.reason))
      return sql`${own} = ${reading.value}::bigint`
    }
    case 'number': {
      if (!/^\d{1,9}(\.\d{1,9})?$/.test(value)) throw badRequest(invalidInput(name, value, 'Value should be a number'))
      return sql`${own} = ${value}::numeric`
    }
    case 'boolean':
      return sql`${own} = ${parseBoolean(name, value)}`
    case 'time': {
      if (
        !/^(?!0000)\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}$/.test(value) ||
        Number.isNaN(Date.parse(value.replace(' ', 'T')))
      ) {
        throw badRequest(invalidInput(name, value, 'Value should be a time such as 2026-01-31T12:00:00'))
      }
      return sql`${own} = ${new Date(`${value.replace(' ', 'T')}Z`).toISOString().slice(0, 19)}::text::timestamp`
    }
    case 'text':
      return sql`${own} = ${value}`
    case 'json':
      return sql`false`
  }
}

function parseSort(resource: Resource, args: ReadonlyMap<string, readonly string[]>): SortKey[] {
  const words = (name: string) => (args.get(name) ?? []).flatMap(value => value.split(','))
  const pairs = args.has('sort')
    ? words('sort').map(word => word.split(':', 2))
    : words('sort_key').map((key, index) => [key, words('sort_dir')[index]])
  requireFewSortKeys(pairs)
  const seen = new Set<string>()
  return pairs
    .filter(([key = '']) => key !== '' && !seen.has(key) && seen.add(key))
    .map(([key = '', direction = 'asc']) => {
      const attribute = Object.hasOwn(resource.attributes, key) ? resource.attributes[key] : undefined
      const sql = attribute === undefined ? null : sqlOf(key, attribute)
      if (attribute === undefined || sql === null || attribute.kind === 'json') throw invalidPaging('sort key', key)
      if (direction !== 'asc' && direction !== 'desc') throw invalidPaging('sort direction', direction)
      return { sql: key === 'created_at' ? 'o.created_at' : sql, descending: direction === 'desc' }
    })
}

function parseLimit(value: string, maxLimit: number): number | null {
  if (value.toLowerCase() === 'infinite') return null
  if (!/^[+-]?\d{1,15}$/.test(value)) throw invalidPaging('pagination limit', value)
  const limit = Number(value)
  return limit <= 0 ? null : Math.min(limit, maxLimit)
}

function parseMarker(resource: Resource, value: string): string {
  const marker = canonicalKey(resource, value)
  if (marker === null) throw unknownMarker(value)
  return marker
}

export const unknownMarker = (marker: string) => invalidPaging('pagination marker', marker)
