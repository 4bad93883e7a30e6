import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { sql } from '../database/sql.js'
import { RETENTION_HOURS } from '../load-balancer/change/idempotency.js'

/**
 * How many events of one load balancer are kept, and for how long. Changes of operating status count apart from the rest:
 * a flapping member does not push requests and their results out of the history.
 */
export const MAX_EVENTS = 1000
export const EVENT_DAYS = 90
export const STATUS_DAYS = 30

/** Bytes of answers kept for repeats of a project's requests. Trees of thousands of members have answers of megabytes. */
const MAX_PROJECT_BYTES = 64 * 1024 * 1024

/** Deletes the oldest answers of projects that have too much of them: their keys start new requests. */
export async function trimAnswers(database: Database, maxProjectBytes = MAX_PROJECT_BYTES): Promise<void> {
  await execute(
    database,
    sql`
     DELETE FROM repeated_request r
      USING (SELECT project_id, user_id, key,
                    sum(octet_length(body)) OVER (PARTITION BY project_id ORDER BY created_at DESC, user_id, key) AS bytes
               FROM repeated_request) AS kept
      WHERE kept.bytes > ${maxProjectBytes}
        AND (r.project_id, r.user_id, r.key) = (kept.project_id, kept.user_id, kept.key)`,
  )
}

/** Deletes expired idempotency records, history events and counters of restarts and adoptions. */
export async function purgeRecords(database: Database): Promise<void> {
  await execute(
    database,
    sql`DELETE FROM repeated_request WHERE created_at < now() - ${RETENTION_HOURS} * interval '1 hour'`,
  )
  await execute(
    database,
    sql`DELETE FROM load_balancer_event
         WHERE created_at < now() - ${STATUS_DAYS} * interval '1 day'
           AND (kind = 'status_changed' OR created_at < now() - ${EVENT_DAYS} * interval '1 day')`,
  )
  await execute(database, sql`DELETE FROM amphora_restart WHERE created_at < now() - interval '1 day'`)
  await execute(database, sql`DELETE FROM amphora_adoption WHERE created_at < now() - interval '1 hour'`)
  for (const isStatus of [true, false]) {
    await execute(
      database,
      sql`
       DELETE FROM load_balancer_event o
        USING load_balancer b CROSS JOIN LATERAL (
          SELECT created_at, id FROM load_balancer_event e
           WHERE e.load_balancer_id = b.id AND (e.kind = 'status_changed') = ${isStatus}
           ORDER BY e.created_at DESC, e.id DESC OFFSET ${MAX_EVENTS - 1} LIMIT 1) AS oldest_kept
        WHERE o.load_balancer_id = b.id AND (o.kind = 'status_changed') = ${isStatus}
          AND (o.created_at, o.id) < (oldest_kept.created_at, oldest_kept.id)`,
    )
  }
}
