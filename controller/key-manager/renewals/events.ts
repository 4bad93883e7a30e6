import { type Fragment, sql } from '../../database/sql.js'

/** What happens to a certificate. `expiring` and `expired` are the notices before and at its expiry. */
export type EventKind = 'renewed' | 'rolled back' | 'failed' | 'expiring' | 'expired'

/** Events kept per certificate: more than an outage of 20 days makes. */
const MAX_EVENTS = 200

/**
 * CTEs of a WITH clause that record an event, and remove the oldest ones beyond the maximum.
 * @param from another CTE with the certificate's row (id, version, not_after), or without rows for no event
 */
export const eventCtes = (from: Fragment, kind: EventKind, message: string): Fragment => sql`
  noted AS (
    INSERT INTO certificate_event (container_id, kind, version, days_left, message)
    SELECT id, ${kind}, version, greatest(0, floor(extract(epoch FROM not_after - now()) / 86400))::integer, ${message}
      FROM ${from} RETURNING container_id),
  forgotten AS (
    DELETE FROM certificate_event WHERE id IN (
      SELECT e.id FROM noted n JOIN certificate_event e ON e.container_id = n.container_id
       ORDER BY e.id DESC OFFSET ${MAX_EVENTS - 1}))`

/** SQL for the record of an event (alias e) as JSON text. */
export const EVENT_JSON = sql`json_build_object('at', iso_time(e.at), 'kind', e.kind, 'version', e.version,
    'days_left', e.days_left, 'message', e.message)::text`
