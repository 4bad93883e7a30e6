import type { Database } from '../database/connection.js'
import { execute, maybeOne } from '../database/query.js'
import { json, sql } from '../database/sql.js'
import { againOnConflict } from '../database/transaction.js'
import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'
import type { Action } from '../provider/provider.js'
import { backOffSeconds } from '../queue/back-off.js'
import type { Claim } from '../queue/claim.js'

/** `again`: a later change or recheck waits and the claim is kept for it. `lost`: another worker has claimed it since; nothing was written. */
export type Settled = 'settled' | 'again' | 'lost'

/** What an attempt did, for the load balancer's history. */
export type Effort = { milliseconds: number; amphorae: readonly Action[] }

const NO_EFFORT: Effort = { milliseconds: 0, amphorae: [] }

/**
 * Records that all of `tree.generation` is in effect: one fenced statement clears the fault, removes what was under deletion and
 * gives the claim back, unless something newer waits.
 * A recheck that was asked for since the claim stays asked for. A recheck that found nothing to do leaves nothing in the history.
 * It is tried again when PostgreSQL reports a conflict: what is removed takes its statistics along, and the health manager may be writing these.
 */
export const settle = (...effect: Parameters<typeof settleOnce>): Promise<Settled> =>
  againOnConflict(() => settleOnce(...effect))

async function settleOnce(
  database: Database,
  claim: Claim,
  tree: LoadBalancerTree,
  effort: Effort = NO_EFFORT,
): Promise<Settled> {
  if (tree.change === 'delete') return removeLoadBalancer(database, claim, tree.generation)
  const { generation } = tree
  const recheckIsLater = sql`recheck_at > ${claim.claimedAt}::timestamptz`
  const waits = sql`generation > ${generation} OR (${recheckIsLater} AND recheck_at <= now())`
  const deleted = sql`o.load_balancer_id = s.id AND o.change = 'delete' AND o.generation <= ${generation}`
  const worthNoting = generation > tree.appliedGeneration || effort.amphorae.length > 0
  const row = await maybeOne(
    database,
    sql<{ again: boolean; settledAt: string }>`
     WITH settled AS (
       UPDATE load_balancer
          SET applied_generation = greatest(applied_generation, ${generation}),
              fault = NULL, fault_generation = NULL, fault_since = NULL, attempts = 0, retry_at = NULL,
              recheck_at = CASE WHEN ${recheckIsLater} THEN recheck_at END,
              lease_owner = CASE WHEN ${waits} THEN lease_owner END,
              lease_until = CASE WHEN ${waits} THEN lease_until END
        WHERE id = ${claim.id} AND fence = ${claim.fence}
        RETURNING id, lease_until IS NOT NULL AS again, now()::text AS "settledAt"),
     noted AS (
       INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
       SELECT id, ${generation}::bigint, 'applied', ${json(effort)}::jsonb FROM settled WHERE ${worthNoting}),
     gone_rules AS (DELETE FROM l7_rule o USING settled s WHERE ${deleted}),
     gone_policies AS (DELETE FROM l7_policy o USING settled s WHERE ${deleted}),
     gone_listeners AS (DELETE FROM listener o USING settled s WHERE ${deleted}),
     gone_pools AS (DELETE FROM pool o USING settled s WHERE ${deleted}),
     gone_members AS (DELETE FROM member o USING settled s WHERE ${deleted}),
     gone_monitors AS (DELETE FROM health_monitor o USING settled s WHERE ${deleted} RETURNING o.pool_id),
     unmonitored AS (
       UPDATE member SET operating_status = CASE WHEN admin_state_up THEN 'NO_MONITOR' ELSE 'OFFLINE' END
         FROM gone_monitors gone
        WHERE member.pool_id = gone.pool_id AND member.change <> 'delete'
          AND NOT EXISTS (SELECT 1 FROM health_monitor other WHERE other.pool_id = gone.pool_id AND other.change <> 'delete'))
     SELECT again, "settledAt" FROM settled`,
  )
  if (row === undefined) return 'lost'
  claim.claimedAt = row.settledAt
  return row.again ? 'again' : 'settled'
}

async function removeLoadBalancer(database: Database, claim: Claim, generation: number): Promise<Settled> {
  const held = sql`id = ${claim.id} AND fence = ${claim.fence}`
  const removed = await execute(
    database,
    sql`DELETE FROM load_balancer WHERE ${held} AND change = 'delete' AND generation = ${generation}`,
  )
  if (removed === 1) return 'settled'
  const row = await maybeOne(database, sql`SELECT id FROM load_balancer WHERE ${held}`)
  return row === undefined ? 'lost' : 'again'
}

/** What the owner reads when a load balancer is in ERROR. */
export type Fault = { code: string; text: string }

/**
 * Records why the attempt failed and when the next one comes (1, 2, 4 ... 300 seconds), and gives the claim back. Fenced. The
 * back-off starts anew with each change. In the history, a failure that repeats the newest event is counted there.
 * @returns seconds until the next attempt (0 when a later change waits), or null when the claim was lost and nothing was written
 */
export async function recordFault(
  database: Database,
  claim: Claim,
  tree: LoadBalancerTree,
  fault: Fault,
  effort: Effort = NO_EFFORT,
): Promise<number | null> {
  const { generation } = tree
  const row = await maybeOne(
    database,
    sql<{ seconds: number }>`
     WITH failed AS (
       UPDATE load_balancer t
          SET fault = ${json(fault)}::jsonb, fault_generation = ${generation}, fault_since = coalesce(t.fault_since, now()),
              attempts = next.attempts, retry_at = now() + next.seconds * interval '1 second',
              lease_owner = NULL, lease_until = NULL
         FROM (SELECT attempts, (${backOffSeconds(sql`attempts`)})::int AS seconds
                 FROM (SELECT CASE WHEN fault_generation = ${generation} THEN attempts + 1 ELSE 1 END AS attempts
                         FROM load_balancer WHERE id = ${claim.id}) AS counted) AS next
        WHERE t.id = ${claim.id} AND t.fence = ${claim.fence}
        RETURNING t.id, CASE WHEN t.generation > ${generation} THEN 0 ELSE next.seconds END AS seconds),
     newest AS (
       SELECT id, created_at FROM load_balancer_event WHERE load_balancer_id = ${claim.id} ORDER BY created_at DESC, id DESC LIMIT 1),
     counted AS (
       UPDATE load_balancer_event o SET count = count + 1, updated_at = clock_timestamp()
         FROM failed, newest
        WHERE o.load_balancer_id = failed.id AND o.created_at = newest.created_at AND o.id = newest.id
          AND o.kind = 'failed' AND o.detail->'fault' = ${json(fault)}::jsonb
        RETURNING o.id),
     noted AS (
       INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
       SELECT id, ${generation}::bigint, 'failed', ${json({ ...effort, fault })}::jsonb FROM failed WHERE NOT EXISTS (SELECT FROM counted))
     SELECT seconds FROM failed`,
  )
  return row?.seconds ?? null
}
