import type { Call } from '../../api/call.js'
import { type Fragment, json, sql } from '../../database/sql.js'
import type { Caller } from '../../identity/caller.js'
import type { Resource } from '../schema/resource.js'
import { isObject } from '../schema/values.js'

/** What a request asks for and who sent it, as the history of a load balancer tells it. */
export type Asked = {
  /** `create`, `update`, `delete`, or what the path says behind the object, such as `failover`. */
  action: string
  /** The key of such an object in bodies. */
  object_type: string
  object_id: string
  /** Attributes and arguments as the client gave them, the long ones shortened. */
  changes: Readonly<Record<string, unknown>>
  user_id: string
  user_name: string
  /** The project of the token; null for a token of the whole system. */
  project_id: string | null
  request_id: string
}

/**
 * What a request asks for; to be called once its body has been read. Pure.
 * @param action `create`, `update`, `delete`, or what the path says behind the object
 * @param id of the object as it is stored, or as it will be
 */
export function askedOf(
  { caller, queryString, sent, requestId }: Pick<Call<Caller>, 'caller' | 'queryString' | 'sent' | 'requestId'>,
  action: string,
  { singular }: Pick<Resource, 'singular'>,
  id: string,
): Asked {
  return {
    action,
    object_type: singular,
    object_id: id,
    changes: { ...Object.fromEntries(new URLSearchParams(queryString)), ...boundedChanges(insideOf(sent)) },
    user_id: caller.user.id,
    user_name: caller.user.name,
    project_id: caller.project?.id ?? null,
    request_id: requestId,
  }
}

/** The attributes of a body without its wrapper. Only a batch of members may do without one. */
function insideOf(body: unknown): Readonly<Record<string, unknown>> {
  if (Array.isArray(body)) return { members: body }
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
