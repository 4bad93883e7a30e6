import { type Fragment, json, sql } from '../../database/sql.js'
import type { Caller } from '../../identity/caller.js'
import type { Route } from '../schema/rights.js'
import { canonicalUuid, isObject } from '../schema/values.js'

/** What a request asks for and who sent it, as the history of a load balancer tells it. */
export type Asked = {
  /** `create`, `update`, `delete`, or what the path says after the object, such as `failover`. */
  action: string
  /** The key of such an object in bodies. */
  object_type: string
  object_id: string | null
  /** Attributes and arguments as the client gave them, the long ones shortened. */
  changes: Readonly<Record<string, unknown>>
  user_id: string
  user_name: string
  /** The project of the token; null for a token of the whole system. */
  project_id: string | null
  request_id: string
}

export type AskedOf = {
  route: Route
  params: Readonly<Record<string, string>>
  queryString: string
  /** The body, undefined when there is none. */
  body: unknown
  caller: Caller
  requestId: string
  /** Id of the object that the request makes. */
  madeId: string | null
}

const VERBS: Readonly<Record<string, string>> = { POST: 'create', PUT: 'update', DELETE: 'delete' }

/** The keys in bodies that do not follow from the collection's name by dropping an s. */
const IRREGULAR: Readonly<Record<string, string>> = {
  l7policies: 'l7policy',
  rules: 'rule',
  amphorae: 'amphora',
  availabilityzones: 'availability_zone',
  availabilityzoneprofiles: 'availability_zone_profile',
}

/** The key of one object of a collection, by the collection's name in paths. */
export const singularOf = (collection: string): string => IRREGULAR[collection] ?? collection.replace(/s$/, '')

/** Pure. */
export function askedOf({ route, params, queryString, body, caller, requestId, madeId }: AskedOf): Asked {
  const [method = '', path = ''] = route.split(' ')
  const segments = path.split('/').slice(2)
  const last = segments.at(-1) ?? ''
  const isObjectPath = last.startsWith(':')
  const collectionAt =
    isObjectPath || method === 'POST' ? segments.length - (isObjectPath ? 2 : 1) : segments.length - 3
  const parameter = segments[collectionAt + 1]?.slice(1)
  const id = parameter === undefined ? undefined : params[parameter]
  const after = isObjectPath || method === 'POST' ? undefined : last
  return {
    action:
      after === undefined
        ? (VERBS[method] ?? method)
        : method === 'PUT' && after.endsWith('s')
          ? `update ${after}`
          : after,
    object_type: singularOf(segments[collectionAt] ?? ''),
    object_id: madeId ?? canonicalUuid(id) ?? id ?? null,
    changes: { ...Object.fromEntries(new URLSearchParams(queryString)), ...boundedChanges(insideOf(body, last)) },
    user_id: caller.user.id,
    user_name: caller.user.name,
    project_id: caller.project?.id ?? null,
    request_id: requestId,
  }
}

/** The attributes of a body without its wrapper; a bare list goes by the name of its collection. */
function insideOf(body: unknown, collection: string): Readonly<Record<string, unknown>> {
  if (Array.isArray(body)) return { [collection]: body }
  if (!isObject(body)) return {}
  const [only, ...others] = Object.values(body)
  return others.length === 0 && isObject(only) ? only : body
}

/** Longest text, and longest JSON text of a list or object, that the history keeps; and of all the attributes of one request. */
const LONGEST_TEXT = 255
const LONGEST_VALUE = 1000
const LONGEST_CHANGES = 8000

function boundedChanges(attributes: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const changes: Record<string, unknown> = {}
  let length = 0
  for (const [name, value] of Object.entries(attributes)) {
    const kept = length < LONGEST_CHANGES ? bounded(value) : '...'
    changes[name] = kept
    length += name.length + (typeof kept === 'string' ? kept.length : JSON.stringify(kept).length)
  }
  return changes
}

function bounded(value: unknown): unknown {
  if (typeof value === 'string') return value.length > LONGEST_TEXT ? `${value.slice(0, LONGEST_TEXT)}...` : value
  if (typeof value !== 'object' || value === null || JSON.stringify(value).length <= LONGEST_VALUE) return value
  return Array.isArray(value) ? `${value.length} items` : `${Object.keys(value).length} keys`
}

/**
 * A statement, for use as a CTE, that tells the history what a request asks for.
 * @param changed the load balancer's row after the change, such as the name of the CTE that changes it
 */
export function requestedEvent(asked: Asked, changed: Fragment): Fragment {
  return sql`INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
     SELECT id, generation, 'requested', ${json(asked)}::jsonb FROM ${changed}`
}
