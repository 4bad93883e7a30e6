import { type Page, type PageLink, type PageRequest, pageLinks } from '../../api/paging.js'
import { argumentsOf, requireFewSortKeys } from '../../api/query.js'
import { invalidRequest } from './neutron-error.js'

export type Sort = { key: string; descending: boolean }

/** A list request, as parsed from its query string. */
export type Listing = PageRequest & {
  /** Attribute -> values, one of which must match. */
  filters: ReadonlyMap<string, readonly string[]>
  /** Attributes to return; empty means all. */
  fields: readonly string[]
  sorts: readonly Sort[]
}

const NOT_FILTERS: ReadonlySet<string> = new Set(['fields', 'sort_key', 'sort_dir', 'limit', 'marker', 'page_reverse'])

/** Maps an attribute's old name to its current one. */
const canonicalName = (name: string) => (name === 'tenant_id' ? 'project_id' : name)

/** Parses a query string. @throws NeutronError 400 in Neutron's wording */
export function parseListing(query: string): Listing {
  const parameters = new URLSearchParams(query)
  const filters = new Map<string, string[]>()
  for (const [name, values] of argumentsOf(parameters)) {
    if (!NOT_FILTERS.has(name))
      filters.set(canonicalName(name), [...(filters.get(canonicalName(name)) ?? []), ...values])
  }
  return {
    filters,
    fields: parameters.getAll('fields').filter(field => field !== ''),
    sorts: parseSorts(parameters.getAll('sort_key'), parameters.getAll('sort_dir')),
    limit: parseLimit(parameters.get('limit')),
    marker: parameters.get('marker') || null,
    reverse: parseBoolean(parameters.get('page_reverse') || 'False'),
  }
}

function parseSorts(keys: readonly string[], directions: readonly string[]): Sort[] {
  if (directions.length > 0 && directions.length !== keys.length) {
    throw invalidRequest('The number of sort_keys and sort_dirs must be same')
  }
  const unknown = directions.find(direction => direction !== 'asc' && direction !== 'desc')
  if (unknown !== undefined)
    throw invalidRequest(`'${unknown}' is invalid value for sort_dirs, valid value is 'asc' and 'desc'`)
  requireFewSortKeys(keys)
  const seen = new Set<string>()
  return keys.flatMap((key, index) => {
    const name = canonicalName(key)
    if (seen.has(name)) return []
    seen.add(name)
    return [{ key: name, descending: directions[index] === 'desc' }]
  })
}

function parseLimit(text: string | null): number | null {
  if (text === null || text === '') return null
  if (!/^\d{1,9}$/.test(text)) throw invalidRequest(`Limit must be an integer 0 or greater and not '${text}'`)
  return Number(text) || null
}

/** @throws NeutronError 400 if the text is not a boolean */
export function parseBoolean(text: string): boolean {
  const word = text.toLowerCase()
  if (word === 'true' || word === '1') return true
  if (word === 'false' || word === '0') return false
  throw invalidRequest(`'${text}' cannot be converted to boolean.`)
}

/**
 * Links to the next and previous page. A request without a limit gets none.
 * @param url of the list
 * @param query of this request
 */
export function paginationLinks(
  { limit }: Listing,
  page: Page<{ id: string }>,
  url: string,
  query: string,
): PageLink[] {
  if (limit === null) return []
  return pageLinks(page, { url, query: new URLSearchParams(query), order: ['next', 'previous'] })
}

/** The requested attributes. Ignores unknown ones. */
export function pickFields<Item extends object>(item: Item, fields: readonly string[]): Partial<Item> {
  if (fields.length === 0) return item
  return Object.fromEntries(Object.entries(item).filter(([name]) => fields.includes(name))) as Partial<Item>
}
