import type { Database } from '../database/connection.js'

/**
 * Which load balancers (alias t) have work to do now. A change newer than the last fault is due at once, whatever the back-off; the
 * first line is the condition of the index load_balancer_due.
 */
export const DUE = `(t.generation > t.applied_generation OR t.recheck_at IS NOT NULL)
  AND (t.generation > t.applied_generation OR t.recheck_at <= now())
  AND (t.retry_at IS NULL OR t.retry_at <= now() OR t.generation > t.fault_generation)`

/** Changes go before checks of what was already in effect, and what waits longest first. */
export const DUE_ORDER =
  't.generation > t.applied_generation DESC, t.retry_at NULLS FIRST, coalesce(t.updated_at, t.created_at)'

/**
 * Seconds until the next load balancer may become due without anybody saying so: a retry time, a recheck, or the end of a dead worker's
 * lease. Zero or less when one is due now; null when nothing is in sight.
 */
export async function secondsUntilDue(database: Database): Promise<number | null> {
  const { rows } = await database.raw(
    `SELECT extract(epoch FROM min(greatest(
              t.lease_until,
              CASE WHEN t.generation > t.applied_generation THEN NULL ELSE t.recheck_at END,
              CASE WHEN t.generation > t.fault_generation THEN NULL ELSE t.retry_at END)) - now())::float8 AS seconds
       FROM load_balancer t
      WHERE t.generation > t.applied_generation OR t.recheck_at IS NOT NULL`,
  )
  return (rows as { seconds: number | null }[])[0]?.seconds ?? null
}
