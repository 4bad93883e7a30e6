import { requireFewSortKeys } from '../../../api/query.js'
import { type Fragment, identifier, sql, trusted } from '../../../database/sql.js'
import { badRequest } from '../../../http/errors.js'
import { queryText } from '../../input.js'
import type { Requester } from '../../rights.js'
import { parseTime } from '../../secrets/expiration.js'
import { LIVE } from '../../secrets/secret.js'
import { integerIn } from '../paging.js'

/** More days than any expiration is away. */
const MOST_DAYS = 3_000_000

/**
 * Conditions over secrets (alias s): which ones a list shows. Pure. Filters that are empty count as not given.
 * @throws ApiError 400 for dates, days and bounds that make no sense
 */
export function conditionsOf(query: URLSearchParams, who: Requester): Fragment[] {
  const text = (name: string) => queryText(query, name)
  const like = (name: string, column: string): Fragment[] => {
    const pattern = text(name)
    // without an escape character, as no pattern then is wrong
    return pattern === null ? [] : [sql`${identifier('s', column)} LIKE ${pattern} ESCAPE ''`]
  }
  const type = text('secret_type')
  return [
    scopeOf(text('acl_only'), who),
    LIVE,
    ...like('name', 'name'),
    ...like('alg', 'algorithm'),
    ...like('mode', 'mode'),
    ...(type === null ? [] : [sql`s.secret_type = ${type}`]),
    ...bitsOf(text('bits')),
    ...boundsOf(text('created'), 'created', 's.created_at'),
    ...boundsOf(text('updated'), 'updated', 's.updated_at'),
    ...boundsOf(text('expiration'), 'expiration', 's.expiration'),
    ...daysOf(text('expiring_in_days')),
  ]
}

/** The project's secrets, or with acl_only those of any project whose ACL names the user. */
function scopeOf(aclOnly: string | null, { userId, projectId }: Requester): Fragment {
  return aclOnly?.trim().toLowerCase() === 'true'
    ? sql`s.acl_users <> '{}' AND s.acl_users @> ARRAY[${userId}::text]`
    : sql`s.project_id = ${projectId}`
}

function bitsOf(text: string | null): Fragment[] {
  const bits = integerIn(text)
  if (bits === null || bits === 0) return []
  return Math.abs(bits) > 32767 ? [sql`false`] : [sql`s.bit_length = ${bits}`]
}

const OPERATORS = { gt: '>', gte: '>=', lt: '<', lte: '<=', eq: '=' } as const

type Bound = keyof typeof OPERATORS

/** `gt:<time>,lte:<time>` or a time alone. */
function boundsOf(text: string | null, name: string, column: string): Fragment[] {
  if (text === null) return []
  const bounds = text.split(',').map(part => {
    const [, bound = 'eq', time = part] = /^\s*(gt|gte|lt|lte):(.*)$/s.exec(part) ?? []
    return { bound: bound as Bound, time: parseTime(time, `The filter ${name}`) }
  })
  const count = (...kinds: Bound[]) => bounds.filter(({ bound }) => kinds.includes(bound)).length
  const isContradictory =
    count('gt', 'gte') > 1 || count('lt', 'lte') > 1 || count('eq') > 1 || (count('eq') > 0 && count('gte', 'lte') > 0)
  if (isContradictory) throw badRequest(`The bounds of the filter ${name} contradict each other.`)
  return bounds.map(({ bound, time }) => sql`${trusted(`${column} ${OPERATORS[bound]}`)} ${time}::timestamptz`)
}

function daysOf(text: string | null): Fragment[] {
  if (text === null) return []
  const days = integerIn(text)
  if (days === null || days < 0) throw badRequest('expiring_in_days must be a whole number of days.')
  const most = Math.min(days, MOST_DAYS)
  return [sql`s.expiration > now() AND s.expiration <= now() + make_interval(days => ${most}::integer)`]
}

const SORT_COLUMNS: Readonly<Record<string, string>> = {
  algorithm: 's.algorithm',
  bit_length: 's.bit_length',
  created: 's.created_at',
  expiration: 's.expiration',
  mode: 's.mode',
  name: 's.name',
  secret_type: 's.secret_type',
  // every secret that a list shows is active
  status: `'ACTIVE'::text`,
  updated: 's.updated_at',
}

/**
 * The order of a list as SQL, for `sort=name:desc,created`; without one that in which the secrets were made. Pure.
 * @throws ApiError 400 for what is no key or no direction, and for a key given twice
 */
export function orderOf(query: URLSearchParams): Fragment {
  const sort = queryText(query, 'sort')
  const parts = sort === null ? [] : sort.split(',')
  requireFewSortKeys(parts)
  const keys = parts.map(part => {
    const [key = '', direction = 'asc', ...rest] = part.split(':').map(word => word.trim())
    const column = Object.hasOwn(SORT_COLUMNS, key) ? SORT_COLUMNS[key] : undefined
    if (column === undefined) throw badRequest(`Secrets cannot be sorted by "${key.slice(0, 100)}".`)
    if (!['asc', 'desc'].includes(direction) || rest.length > 0) {
      throw badRequest(`Secrets can be sorted by ${key} in the directions asc and desc only.`)
    }
    return { key, words: `${column} ${direction}` }
  })
  if (new Set(keys.map(({ key }) => key)).size < keys.length) throw badRequest('A sort key is given twice.')
  return trusted([...keys.map(({ words }) => words), 's.created_at', 's.id'].join(', '))
}
