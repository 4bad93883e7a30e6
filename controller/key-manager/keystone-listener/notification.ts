import * as z from 'zod'

/** What a message on the bus means for the key manager. */
export type Notification =
  | { kind: 'project deleted'; projectId: string }
  | { kind: 'ignored'; eventType: string }
  | { kind: 'malformed'; reason: string }

/** Keystone's notifications have a few thousand bytes. */
const MAX_BYTES = 1024 * 1024
const MAX_EVENT_TYPE_LENGTH = 255
/** Keystone's column has 64 characters. Excludes those that control a terminal, and NUL, which PostgreSQL rejects. */
const PROJECT_ID = /^[^\p{C}\p{Z}]{1,64}$/u

const envelope = z.looseObject({ 'oslo.version': z.string(), 'oslo.message': z.string() })
const notification = z.looseObject({ event_type: z.string().min(1), payload: z.unknown().optional() })
/** The members of Keystone's formats `basic` and `cadf`. */
const projectPayload = z.looseObject({
  resource_info: z.unknown().optional(),
  target: z.looseObject({ id: z.unknown().optional() }).optional(),
  outcome: z.string().optional(),
})

/**
 * Parses a notification: JSON, with or without oslo.messaging's envelope `{"oslo.version", "oslo.message"}`, and a
 * payload in Keystone's format `basic` or `cadf`. Accepts any input and never throws.
 * @param body bytes, text, or an already parsed value
 */
export function parseNotification(body: unknown): Notification {
  const message = unwrap(body)
  if (message === TOO_LONG) return malformed(`it is larger than ${MAX_BYTES} bytes`)
  if (message === NOT_JSON) return malformed('it is not JSON')
  const parsed = notification.safeParse(message)
  if (!parsed.success) return malformed('it has no event_type')
  const { event_type, payload } = parsed.data
  if (!isProjectDeletion(event_type)) {
    return { kind: 'ignored', eventType: event_type.slice(0, MAX_EVENT_TYPE_LENGTH) }
  }
  return deletedProject(event_type, payload)
}

/** Whether a type ends with `identity.project.deleted`, in any case. */
function isProjectDeletion(eventType: string): boolean {
  return eventType.toLowerCase().split('.').slice(-3).join('.') === 'identity.project.deleted'
}

function deletedProject(event_type: string, given: unknown): Notification {
  const parsed = projectPayload.safeParse(given)
  if (!parsed.success) return malformed('its payload is not that of a project')
  const { resource_info, target, outcome } = parsed.data
  // A failed attempt deletes nothing.
  if (outcome !== undefined && outcome !== 'success') return { kind: 'ignored', eventType: event_type }
  const projectId = resource_info ?? target?.id
  if (typeof projectId !== 'string' || !PROJECT_ID.test(projectId)) return malformed('its payload names no project')
  return { kind: 'project deleted', projectId }
}

const TOO_LONG = Symbol('too long')
const NOT_JSON = Symbol('not JSON')

/** Removes the envelope, if any. */
function unwrap(body: unknown): unknown {
  const outer = parseJson(body)
  const inner = envelope.safeParse(outer)
  return inner.success ? parseJson(inner.data['oslo.message']) : outer
}

function parseJson(body: unknown): unknown {
  if (!Buffer.isBuffer(body) && typeof body !== 'string') return body
  if (body.length > MAX_BYTES) return TOO_LONG
  try {
    return JSON.parse(body.toString())
  } catch {
    return NOT_JSON
  }
}

const malformed = (reason: string): Notification => ({ kind: 'malformed', reason })
