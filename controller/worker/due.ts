import type { Database } from '../database/connection.js'
import { one } from '../database/query.js'
import { sql } from '../database/sql.js'
import { type ClaimRequest, NOT_HELD } from '../queue/claim.js'

/**
 * Which load balancers (alias t) have work to do now. A change newer than the last fault is due at once, whatever the back-off; the
 * first line is the condition of the index load_balancer_due.
 */
const DUE = sql`(t.generation > t.applied_generation OR t.recheck_at IS NOT NULL)
  AND (t.generation > t.applied_generation OR t.recheck_at <= now())
  AND (t.retry_at IS NULL OR t.retry_at <= now() OR t.generation > t.fault_generation)`

/** Within a project changes go before checks of what was already in effect, and what waits longest first. */
const ORDER_IN_PROJECT = sql`t.generation > t.applied_generation DESC, t.retry_at NULLS FIRST, coalesce(t.updated_at, t.created_at)`

/** What is made for the first time or removed. It waits for machines, often for long; nobody's traffic waits for it. */
const CARRIES_NO_TRAFFIC = sql`(t.applied_generation = 0 OR t.change = 'delete')`

/** One slot in so many is left to load balancers that carry traffic. */
const SLOTS_PER_KEPT_ONE = 4

/**
 * SQL of what a worker chooses among: what is due, in turns of the projects. A project may take one more slot only while more are free than it
 * holds, so whoever holds how many, another project finds one: of twelve the first takes six, the next three, and so on. The last free ones are for load
 * balancers that carry traffic, however many projects make and remove others. As many are for these, however many projects change theirs.
 */
const candidates = (free: number, kept: number, held: readonly string[]) => sql`
  WITH slots AS (SELECT ${free}::integer AS free, ${kept}::integer AS kept),
       held AS (SELECT t.project_id, ${CARRIES_NO_TRAFFIC} AS carries_no_traffic FROM load_balancer t WHERE t.id = ANY(${held}::uuid[])),
       due AS (
         SELECT t.id, ${CARRIES_NO_TRAFFIC} AS carries_no_traffic, coalesce(h.slots, 0) + row_number() OVER of_project AS turn,
                row_number() OVER (ORDER BY ${ORDER_IN_PROJECT}) AS age
           FROM load_balancer t
           LEFT JOIN (SELECT project_id, count(*) AS slots FROM held GROUP BY project_id) h ON h.project_id = t.project_id
          WHERE ${NOT_HELD} AND (${DUE})
         WINDOW of_project AS (PARTITION BY t.project_id ORDER BY ${ORDER_IN_PROJECT})),
       placed AS (
         SELECT *, row_number() OVER (ORDER BY turn, age) AS place,
                row_number() OVER (PARTITION BY carries_no_traffic ORDER BY turn, age) AS place_of_kind FROM due),
       allowed AS (
         SELECT id, turn, row_number() OVER (ORDER BY place) AS place FROM placed, slots
          WHERE NOT carries_no_traffic OR turn + place + kept <= free + 1
             OR place_of_kind + (SELECT count(*) FROM held WHERE carries_no_traffic) <= kept)
  SELECT id, turn FROM allowed, slots WHERE turn + place <= free + 1`

/**
 * How load balancers are claimed: the projects take turns, and none holds all slots of a worker.
 * @param slots how many the worker has
 */
export const claimsOf = (owner: string, slots: number): Omit<ClaimRequest, 'limit' | 'held'> => ({
  table: 'load_balancer',
  due: DUE,
  order: sql`c.turn, ${ORDER_IN_PROJECT}`,
  candidates: (limit, held) => candidates(limit, Math.floor(slots / SLOTS_PER_KEPT_ONE), held),
  owner,
})

/**
 * Seconds until the next load balancer may become due without anybody saying so: a retry time, a recheck, or the end of a dead worker's
 * lease. Zero or less when one is due now; null when nothing is in sight.
 */
export async function secondsUntilDue(database: Database): Promise<number | null> {
  const { seconds } = await one(
    database,
    sql<{ seconds: number | null }>`
     SELECT extract(epoch FROM min(greatest(
              t.lease_until,
              CASE WHEN t.generation > t.applied_generation THEN NULL ELSE t.recheck_at END,
              CASE WHEN t.generation > t.fault_generation THEN NULL ELSE t.retry_at END)) - now())::float8 AS seconds
       FROM load_balancer t
      WHERE t.generation > t.applied_generation OR t.recheck_at IS NOT NULL`,
  )
  return seconds
}
