import type { Database } from '../database/connection.js'
import { one } from '../database/query.js'
import { type Fragment, sql } from '../database/sql.js'
import { type ClaimRequest, NOT_HELD } from '../queue/claim.js'

/**
 * SQL: the load balancer (alias t) is due now. A change newer than the last fault is due at once, regardless of
 * the back-off. The first line repeats the condition of the index load_balancer_due.
 */
const DUE = sql`(t.generation > t.applied_generation OR t.recheck_at IS NOT NULL)
  AND (t.generation > t.applied_generation OR t.recheck_at <= now())
  AND (t.retry_at IS NULL OR t.retry_at <= now() OR t.generation > t.fault_generation)`

/**
 * SQL: a worker of this host may work on the load balancer (alias t). Machines belong to the host that made them, so
 * others leave the load balancer alone unless that host is gone. If it has no machine yet, it suffices that no worker
 * runs there. A host that others hold to be gone must tidy up first.
 * @param host null for a worker whose machines are bound to no host
 */
const isOurs = (host: string | null): Fragment =>
  host === null
    ? sql`t.host_id IS NULL`
    : sql`(t.host_id IS NULL OR t.host_id = ${host} OR t.host_id IN (SELECT id FROM controller_host WHERE gone_at IS NOT NULL)
           OR (t.applied_generation = 0 AND NOT EXISTS (SELECT FROM amphora WHERE amphora.load_balancer_id = t.id)
               AND NOT EXISTS (SELECT FROM controller_process p
                                WHERE p.host_id = t.host_id AND p.name = 'worker' AND p.last_seen_at > now() - interval '10 seconds')))
          AND EXISTS (SELECT FROM controller_host WHERE id = ${host} AND gone_at IS NULL)`

/** Within a project: changes before rechecks of applied generations, then the longest waiting first. */
const ORDER_IN_PROJECT = sql`t.generation > t.applied_generation DESC,
  CASE WHEN t.generation > t.applied_generation THEN t.retry_at ELSE greatest(t.retry_at, t.recheck_at) END NULLS FIRST,
  coalesce(t.updated_at, t.created_at)`

/**
 * SQL: the load balancer is being created or deleted. That often waits long for machines, and no traffic waits
 * for it.
 */
const CARRIES_NO_TRAFFIC = sql`(t.applied_generation = 0 OR t.change = 'delete')`

/** One slot in four is reserved for load balancers that carry traffic. */
const SLOTS_PER_RESERVED_SLOT = 4

/**
 * SQL of the load balancers that a worker may claim: those due, with projects taking turns. A project may take
 * another slot only while more slots are free than it holds, so that one is always left for another project: of
 * twelve, the first takes six, the next three, and so on. The last `reserved` free slots go only to load
 * balancers that carry traffic, however many projects create and delete others. As many slots are reserved for
 * creates and deletes, however many projects change load balancers that carry traffic.
 */
const candidates = (host: string | null, free: number, reserved: number, held: readonly string[]) => sql`
  WITH slots AS (SELECT ${free}::integer AS free, ${reserved}::integer AS reserved),
       held AS (SELECT t.project_id, ${CARRIES_NO_TRAFFIC} AS carries_no_traffic FROM load_balancer t WHERE t.id = ANY(${held}::uuid[])),
       due AS (
         SELECT t.id, ${CARRIES_NO_TRAFFIC} AS carries_no_traffic, coalesce(h.slots, 0) + row_number() OVER of_project AS turn,
                row_number() OVER (ORDER BY ${ORDER_IN_PROJECT}) AS age
           FROM load_balancer t
           LEFT JOIN (SELECT project_id, count(*) AS slots FROM held GROUP BY project_id) h ON h.project_id = t.project_id
          WHERE ${NOT_HELD} AND (${DUE}) AND ${isOurs(host)}
         WINDOW of_project AS (PARTITION BY t.project_id ORDER BY ${ORDER_IN_PROJECT})),
       placed AS (
         SELECT *, row_number() OVER (ORDER BY turn, age) AS place,
                row_number() OVER (PARTITION BY carries_no_traffic ORDER BY turn, age) AS place_in_kind FROM due),
       allowed AS (
         SELECT id, turn, row_number() OVER (ORDER BY place) AS place FROM placed, slots
          WHERE NOT carries_no_traffic OR turn + place + reserved <= free + 1
             OR place_in_kind + (SELECT count(*) FROM held WHERE carries_no_traffic) <= reserved)
  SELECT id, turn FROM allowed, slots WHERE turn + place <= free + 1`

/**
 * How a worker claims load balancers: projects take turns, and none gets all slots.
 * @param slots number of slots of the worker
 * @param host the controller host of the worker; null if its machines are bound to no host
 */
export const loadBalancerClaims = (
  owner: string,
  slots: number,
  host: string | null,
): Omit<ClaimRequest, 'limit' | 'held'> => ({
  table: 'load_balancer',
  due: sql`${DUE} AND ${isOurs(host)}`,
  order: sql`c.turn, ${ORDER_IN_PROJECT}`,
  candidates: (limit, held) => candidates(host, limit, Math.floor(slots / SLOTS_PER_RESERVED_SLOT), held),
  owner,
})

/**
 * Seconds until the next load balancer of this host may become due without a wake-up: by a retry, a recheck, or the
 * expiry of a dead worker's lease. Zero or less when one is due now; null when none is known.
 */
export async function secondsUntilDue(database: Database, host: string | null): Promise<number | null> {
  const { seconds } = await one(
    database,
    sql<{ seconds: number | null }>`
     SELECT extract(epoch FROM min(greatest(
              t.lease_until,
              CASE WHEN t.generation > t.applied_generation THEN NULL ELSE t.recheck_at END,
              CASE WHEN t.generation > t.fault_generation THEN NULL ELSE t.retry_at END)) - now())::float8 AS seconds
       FROM load_balancer t
      WHERE (t.generation > t.applied_generation OR t.recheck_at IS NOT NULL) AND ${isOurs(host)}`,
  )
  return seconds
}
