import { requireFewSortKeys } from '../../../api/query.js'
import { type Fragment, identifier, sql, trusted } from '../../../database/sql.js'
import { badRequest } from '../../../http/errors.js'
import { queryText } from '../../input.js'
import type { Requester } from '../../rights.js'
import { parseTime } from '../../secrets/expiration.js'
import { LIVE } from '../../secrets/secret.js'
import { parseInteger } from '../paging.js'

/** Later than any expiration. */
const MAX_DAYS = 3_000_000

/**
 * SQL conditions of a list of secrets (alias s). Pure. Empty filters count as missing.
 * @throws ApiError 400 for invalid dates, days or bounds
 */
export function listConditions(query: URLSearchParams, requester: Requester): Fragment[] {
  const text = (name: string) => queryText(query, name)
  const like = (name: string, column: string): Fragment[] => {
    const pattern = text(name)
    // Without an escape character, every pattern is valid.
    return pattern === null ? [] : [sql`${identifier('s', column)} LIKE ${pattern} ESCAPE ''`]
  }
  const type = text('secret_type')
  return [
    scopeCondition(text('acl_only'), requester),
    LIVE,
    ...like('name', 'name'),
    ...like('alg', 'algorithm'),
    ...like('mode', 'mode'),
    ...(type === null ? [] : [sql`s.secret_type = ${type}`]),
    ...bitsCondition(text('bits')),
    ...boundConditions(text('created'), 'created', 's.created_at'),
    ...boundConditions(text('updated'), 'updated', 's.updated_at'),
    ...boundConditions(text('expiration'), 'expiration', 's.expiration'),
    ...daysCondition(text('expiring_in_days')),
  ]
}

/** The project's secrets; with acl_only, those of any project whose ACL has the user. */
function scopeCondition(aclOnly: string | null, { userId, projectId }: Requester): Fragment {
  return aclOnly?.trim().toLowerCase() === 'true'
    ? sql`s.acl_users <> '{}' AND s.acl_users @> ARRAY[${userId}::text]`
    : sql`s.project_id = ${projectId}`
}

function bitsCondition(text: string | null): Fragment[] {
  const bits = parseInteger(text)
  if (bits === null || bits === 0) return []
  return Math.abs(bits) > 32767 ? [sql`false`] : [sql`s.bit_length = ${bits}`]
}

const OPERATORS = { gt: '>', gte: '>=', lt: '<', lte: '<=', eq: '=' } as const

type Bound = keyof typeof OPERATORS

/** `gt:<time>,lte:<time>` or a single time. */
function boundConditions(text: string | null, name: string, column: string): Fragment[] {
  if (text === null) return []
  const bounds = text.split(',').map(part => {
    const [, bound = 'eq', time = part] = /^\s*(gt|gte|lt|lte):(.*)$/s.exec(part) ?? []
    return { bound: bound as Bound, time: parseTime(time, `The filter ${name}`) }
  })
  const count = (...kinds: Bound[]) => bounds.filter(({ bound }) => kinds.includes(bound)).length
  const isContradictory =
    count('gt', 'gte') > 1 || count('lt', 'lte') > 1 || count('eq') > 1 || (count('eq') > 0 && count('gte', 'lte') > 0)
  if (isContradictory)
    throw badRequest(
      `The filter ${name} takes one lower bound (gt: or gte:), one upper bound (lt: or lte:), or one time.`,
    )
  return bounds.map(({ bound, time }) => sql`${trusted(`${column} ${OPERATORS[bound]}`)} ${time}::timestamptz`)
}

function daysCondition(text: string | null): Fragment[] {
  if (text === null) return []
  const days = parseInteger(text)
  if (days === null || days < 0) throw badRequest('expiring_in_days must be a whole number of days, 0 or more.')
  const limited = Math.min(days, MAX_DAYS)
  return [sql`s.expiration > now() AND s.expiration <= now() + make_interval(days => ${limited}::integer)`]
}

const SORT_COLUMNS: Readonly<Record<string, string>> = {
  algorithm: 's.algorithm',
  bit_length: 's.bit_length',
  created: 's.created_at',
  expiration: 's.expiration',
  mode: 's.mode',
  name: 's.name',
  secret_type: 's.secret_type',
  // Every listed secret is active.
  status: `'ACTIVE'::text`,
  updated: 's.updated_at',
}

/**
 * The order of a list as SQL, for `sort=name:desc,created`. Default: by creation. Pure.
 * @throws ApiError 400 for an unknown key or direction, and for a duplicate key
 */
export function listOrder(query: URLSearchParams): Fragment {
  const sort = queryText(query, 'sort')
  const parts = sort === null ? [] : sort.split(',')
  requireFewSortKeys(parts)
  const keys = parts.map(part => {
    const [key = '', direction = 'asc', ...rest] = part.split(':').map(word => word.trim())
    const column = Object.hasOwn(SORT_COLUMNS, key) ? SORT_COLUMNS[key] : undefined
    if (column === undefined)
      throw badRequest(
        `Secrets cannot be sorted by "${key.slice(0, 100)}", only by ${Object.keys(SORT_COLUMNS).join(', ')}.`,
      )
    if (!['asc', 'desc'].includes(direction) || rest.length > 0) {
      throw badRequest(`The sort direction of ${key} must be asc or desc.`)
    }
    return { key, words: `${column} ${direction}` }
  })
  if (new Set(keys.map(({ key }) => key)).size < keys.length) throw badRequest('A sort key occurs twice.')
  return trusted([...keys.map(({ words }) => words), 's.created_at', 's.id'].join(', '))
}
