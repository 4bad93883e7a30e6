import { z } from 'zod'

/** What a message on the bus means for the key manager. */
export type Notification =
  | { kind: 'project deleted'; projectId: string }
  | { kind: 'ignored'; eventType: string }
  | { kind: 'malformed'; reason: string }

/** Notifications of the identity service have some thousand bytes. */
const MOST_BYTES = 1024 * 1024
const LONGEST_EVENT_TYPE = 255
/** Keystone's column has 64 characters. None of them may steer a terminal or end a text in the database. */
const PROJECT_ID = /^[^\p{C}\p{Z}]{1,64}$/u

const envelope = z.looseObject({ 'oslo.version': z.string(), 'oslo.message': z.string() })
const notification = z.looseObject({ event_type: z.string().min(1), payload: z.unknown().optional() })
/** What the formats `basic` and `cadf` have in common, and what only `cadf` has. */
const projectPayload = z.looseObject({
  resource_info: z.unknown().optional(),
  target: z.looseObject({ id: z.unknown().optional() }).optional(),
  outcome: z.string().optional(),
})

/**
 * Reads one message as the identity service sends it: JSON in oslo.messaging's envelope `{"oslo.version", "oslo.message"}` or without it,
 * with a payload in Keystone's format `basic` or `cadf`. Anything may come in; nothing is thrown.
 * @param body as bytes, as text, or already parsed
 */
export function parseNotification(body: unknown): Notification {
  const message = unwrapped(body)
  if (message === TOO_LONG) return malformed(`it has more than ${MOST_BYTES} bytes`)
  if (message === NOT_JSON) return malformed('it is not JSON')
  const parsed = notification.safeParse(message)
  if (!parsed.success) return malformed('it has no event_type')
  const { event_type, payload } = parsed.data
  if (!tellsOfDeletedProject(event_type)) {
    return { kind: 'ignored', eventType: event_type.slice(0, LONGEST_EVENT_TYPE) }
  }
  return deletedProject(event_type, payload)
}

/** `identity.project.deleted`, in any case and with anything before it. */
function tellsOfDeletedProject(eventType: string): boolean {
  return eventType.toLowerCase().split('.').slice(-3).join('.') === 'identity.project.deleted'
}

function deletedProject(event_type: string, given: unknown): Notification {
  const parsed = projectPayload.safeParse(given)
  if (!parsed.success) return malformed('its payload is not that of a project')
  const { resource_info, target, outcome } = parsed.data
  // An attempt that failed is no deletion.
  if (outcome !== undefined && outcome !== 'success') return { kind: 'ignored', eventType: event_type }
  const projectId = resource_info ?? target?.id
  if (typeof projectId !== 'string' || !PROJECT_ID.test(projectId)) return malformed('its payload names no project')
  return { kind: 'project deleted', projectId }
}

const TOO_LONG = Symbol('too long')
const NOT_JSON = Symbol('not JSON')

/** The notification in a body, out of its envelope. */
function unwrapped(body: unknown): unknown {
  const outer = parsedOf(body)
  const inner = envelope.safeParse(outer)
  return inner.success ? parsedOf(inner.data['oslo.message']) : outer
}

function parsedOf(body: unknown): unknown {
  if (!Buffer.isBuffer(body) && typeof body !== 'string') return body
  if (body.length > MOST_BYTES) return TOO_LONG
  try {
    return JSON.parse(body.toString())
  } catch {
    return NOT_JSON
  }
}

const malformed = (reason: string): Notification => ({ kind: 'malformed', reason })
