import type { Call } from '../../api/call.js'
import { type Fragment, json, sql } from '../../database/sql.js'
import type { Caller } from '../../identity/caller.js'
import type { Resource } from '../schema/resource.js'
import { isObject } from '../schema/values.js'

/** Detail of a 'requested' event: what the request asks for, and who sent it. */
export type RequestDetail = {
  /** `create`, `update`, `delete`, or the last segment of the path, such as `failover`. */
  action: string
  /** Key of the object in bodies, such as `loadbalancer`. */
  object_type: string
  object_id: string
  /** Attributes and arguments as the client sent them; long values are shortened. */
  changes: Readonly<Record<string, unknown>>
  user_id: string
  user_name: string
  /** Project of the token; null for a system-scoped token. */
  project_id: string | null
  request_id: string
}

/**
 * Describes a request. Call it after the body has been read. Pure.
 * @param action `create`, `update`, `delete`, or the last segment of the path
 * @param id of the existing or new object
 */
export function requestDetail(
  { caller, queryString, sent, requestId }: Pick<Call<Caller>, 'caller' | 'queryString' | 'sent' | 'requestId'>,
  action: string,
  { singular }: Pick<Resource, 'singular'>,
  id: string,
): RequestDetail {
  return {
    action,
    object_type: singular,
    object_id: id,
    changes: { ...Object.fromEntries(new URLSearchParams(queryString)), ...shortenChanges(attributesIn(sent)) },
    user_id: caller.user.id,
    user_name: caller.user.name,
    project_id: caller.project?.id ?? null,
    request_id: requestId,
  }
}

/** Attributes of a body without its wrapper. Only a batch of members may come without one. */
function attributesIn(body: unknown): Readonly<Record<string, unknown>> {
  if (Array.isArray(body)) return { members: body }
  if (!isObject(body)) return {}
  const [only, ...others] = Object.values(body)
  return others.length === 0 && isObject(only) ? only : body
}

/**
 * Longest text, longest JSON of a list or object, and longest sum for all attributes of a request that an event
 * stores.
 */
const MAX_TEXT_LENGTH = 255
const MAX_JSON_LENGTH = 1000
const MAX_CHANGES_LENGTH = 8000

function shortenChanges(attributes: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const changes: Record<string, unknown> = {}
  let length = 0
  for (const [name, value] of Object.entries(attributes)) {
    const stored = length < MAX_CHANGES_LENGTH ? shorten(value) : '...'
    changes[name] = stored
    length += name.length + (typeof stored === 'string' ? stored.length : JSON.stringify(stored).length)
  }
  return changes
}

function shorten(value: unknown): unknown {
  if (typeof value === 'string') return value.length > MAX_TEXT_LENGTH ? `${value.slice(0, MAX_TEXT_LENGTH)}...` : value
  if (typeof value !== 'object' || value === null) return value
  // Not even a list of single digits is shorter. Writing thousands of members only to measure them takes long.
  const isLong = Array.isArray(value) && value.length > MAX_JSON_LENGTH
  if (!isLong && JSON.stringify(value).length <= MAX_JSON_LENGTH) return value
  return Array.isArray(value) ? `${value.length} items` : `${Object.keys(value).length} keys`
}

/**
 * SQL of a CTE that inserts a 'requested' event.
 * @param changed SQL of the load balancer's row after the change, such as the name of the CTE that changes it
 */
export function requestedEvent(detail: RequestDetail, changed: Fragment): Fragment {
  return sql`INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
     SELECT id, generation, 'requested', ${json(detail)}::jsonb FROM ${changed}`
}
