import type { Database } from '../database/connection.js'
import { execute, maybeOne } from '../database/query.js'
import { type Fragment, json, sql, trusted } from '../database/sql.js'
import { retryOnConflict } from '../database/transaction.js'
import { answeredChallenges } from '../load-balancer/tree/answered-challenges.js'
import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'
import type { Action } from '../provider/provider.js'
import { backOffSeconds } from '../queue/back-off.js'
import type { Claim } from '../queue/claim.js'

/**
 * `again`: a later change or recheck waits, and the claim is kept for it. `lost`: another worker holds the
 * claim, and nothing was written.
 */
export type Settled = 'settled' | 'again' | 'lost'

/** What an attempt did, for the event of the load balancer. */
export type Effort = { milliseconds: number; amphorae: readonly Action[] }

const NO_EFFORT: Effort = { milliseconds: 0, amphorae: [] }

/**
 * Records that `tree.generation` is fully applied. One fenced statement clears the fault, deletes the rows under
 * deletion and releases the claim, unless something newer waits. As in Octavia, an object that becomes ACTIVE is
 * updated at that moment. A recheck requested since the claim stays requested. A recheck that found nothing to do adds
 * no event. Retries when PostgreSQL reports a conflict: the health manager may be writing statistics and statuses.
 */
export const settle = async (
  database: Database,
  claim: Claim,
  tree: LoadBalancerTree,
  effort: Effort = NO_EFFORT,
): Promise<Settled> => (await retryOnConflict(() => settleOnce(database, claim, tree, { effort, fault: null }))).settled

/**
 * The same for a generation that is in effect, but with a fault. The recheck comes after a pause like those of
 * `recordFault`, or earlier if something else asks for it.
 * @returns also the seconds until the recheck at the latest
 */
export const settleWithFault = (
  database: Database,
  claim: Claim,
  tree: LoadBalancerTree,
  result: { effort: Effort; fault: Fault },
): Promise<{ settled: Settled; retrySeconds: number }> =>
  retryOnConflict(() => settleOnce(database, claim, tree, result))

async function settleOnce(
  database: Database,
  claim: Claim,
  tree: LoadBalancerTree,
  { effort, fault }: { effort: Effort; fault: Fault | null },
): Promise<{ settled: Settled; retrySeconds: number }> {
  if (tree.change === 'delete')
    return { settled: await removeLoadBalancer(database, claim, tree.generation), retrySeconds: 0 }
  const { generation } = tree
  const recheckIsLater = sql`recheck_at > ${claim.claimedAt}::timestamptz`
  const waits = sql`generation > ${generation} OR (${recheckIsLater} AND recheck_at <= now())`
  const answered = answeredChallenges(tree).map(({ id }) => id)
  const isChange = generation > tree.appliedGeneration
  const needsEvent = isChange || effort.amphorae.length > 0
  const requested = sql`CASE WHEN ${recheckIsLater} THEN recheck_at END`
  const pause = backOffSeconds(attemptsAt(generation, true))
  const row = await maybeOne(
    database,
    sql<{ again: boolean; settledAt: string; seconds: number }>`
     WITH settled AS (
       UPDATE load_balancer
          SET applied_generation = greatest(applied_generation, ${generation}),
              ${
                fault === null
                  ? sql`fault = NULL, fault_generation = NULL, fault_since = NULL, attempts = 0, recheck_at = ${requested},`
                  : sql`${faultColumns(fault, generation, true)}, recheck_at = least(${requested}, now() + ${pause} * interval '1 second'),`
              }
              retry_at = NULL, answered_challenges = ${answered}::uuid[],
              lease_owner = CASE WHEN ${waits} THEN lease_owner END,
              lease_until = CASE WHEN ${waits} THEN lease_until END,
              updated_at = CASE WHEN ${isChange} THEN now() ELSE updated_at END
        WHERE id = ${claim.id} AND fence = ${claim.fence}
        RETURNING id, lease_until IS NOT NULL AS again, now()::text AS "settledAt",
                  (${backOffSeconds(sql`greatest(attempts, 1)`)})::int AS seconds),
     event AS (
       INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
       SELECT id, ${generation}::bigint, 'applied', ${json(effort)}::jsonb FROM settled WHERE ${needsEvent} RETURNING id),
     unchanged AS (SELECT id FROM settled WHERE NOT EXISTS (SELECT FROM event)),
     ${fault === null ? sql`` : sql`${failureEvent(['settled', 'unchanged'], claim, { generation, effort, fault })},`}
     ${deletions(tree)},
     ${applications(tree)}
     SELECT again, "settledAt", seconds FROM settled`,
  )
  if (row === undefined) return { settled: 'lost', retrySeconds: 0 }
  claim.claimedAt = row.settledAt
  return { settled: row.again ? 'again' : 'settled', retrySeconds: row.seconds }
}

/** CTEs that delete the rows under deletion. */
function deletions({ generation }: LoadBalancerTree): Fragment {
  const isDeleted = sql`o.load_balancer_id = s.id AND o.change = 'delete' AND o.generation <= ${generation}`
  return sql`
     deleted_rules AS (DELETE FROM l7_rule o USING settled s WHERE ${isDeleted}),
     deleted_policies AS (DELETE FROM l7_policy o USING settled s WHERE ${isDeleted}),
     deleted_listeners AS (DELETE FROM listener o USING settled s WHERE ${isDeleted}),
     deleted_pools AS (DELETE FROM pool o USING settled s WHERE ${isDeleted}),
     deleted_members AS (DELETE FROM member o USING settled s WHERE ${isDeleted}),
     deleted_monitors AS (DELETE FROM health_monitor o USING settled s WHERE ${isDeleted} RETURNING o.pool_id)`
}

/**
 * CTEs that write when the changed rows became ACTIVE, and the status of members that have lost their monitor. One
 * statement must not update a row twice, hence one CTE for both columns of members.
 */
function applications({ generation, appliedGeneration }: LoadBalancerTree): Fragment {
  const isApplied = sql`o.change <> 'delete' AND o.generation > ${appliedGeneration} AND o.generation <= ${generation}`
  const isAppliedNow = sql`SET updated_at = now() FROM settled s WHERE o.load_balancer_id = s.id AND ${isApplied}`
  return sql`
     unmonitored AS (
       SELECT pool_id FROM deleted_monitors d
        WHERE NOT EXISTS (SELECT 1 FROM health_monitor other WHERE other.pool_id = d.pool_id AND other.change <> 'delete')),
     applied_members AS (
       UPDATE member o
          SET operating_status = CASE WHEN o.pool_id NOT IN (TABLE unmonitored) THEN o.operating_status
                                      WHEN o.admin_state_up THEN 'NO_MONITOR' ELSE 'OFFLINE' END,
              operating_reason = CASE WHEN o.pool_id NOT IN (TABLE unmonitored) THEN o.operating_reason END,
              operating_since = CASE WHEN o.pool_id NOT IN (TABLE unmonitored) THEN o.operating_since ELSE now() END,
              updated_at = CASE WHEN ${isApplied} THEN now() ELSE o.updated_at END
         FROM settled s, pool p
        WHERE p.load_balancer_id = s.id AND o.pool_id = p.id AND o.change <> 'delete'
          AND (${isApplied} OR o.pool_id IN (TABLE unmonitored))),
     applied_rules AS (UPDATE l7_rule o ${isAppliedNow}),
     applied_policies AS (UPDATE l7_policy o ${isAppliedNow}),
     applied_listeners AS (UPDATE listener o ${isAppliedNow}),
     applied_pools AS (UPDATE pool o ${isAppliedNow}),
     applied_monitors AS (UPDATE health_monitor o ${isAppliedNow})`
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

/** Shown to the owner of a load balancer in ERROR. */
export type Fault = { code: string; text: string }

/**
 * Records why the attempt failed and when to retry (after 1, 2, 4 ... 300 seconds), and releases the claim.
 * Fenced. Every change restarts the back-off. A failure that repeats the newest event, changes of status aside,
 * increases its count instead of adding an event.
 * @returns seconds until the next attempt (0 when a later change waits), or null when the claim is lost and
 *   nothing was written
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
       UPDATE load_balancer
          SET ${faultColumns(fault, generation, false)},
              retry_at = now() + ${backOffSeconds(attemptsAt(generation, false))} * interval '1 second',
              lease_owner = NULL, lease_until = NULL
        WHERE id = ${claim.id} AND fence = ${claim.fence}
        RETURNING id, CASE WHEN generation > ${generation} THEN 0 ELSE (${backOffSeconds(sql`attempts`)})::int END AS seconds),
     ${failureEvent(['failed', 'failed'], claim, { generation, effort, fault })}
     SELECT seconds FROM failed`,
  )
  return row?.seconds ?? null
}

/** SQL: the fault before was of the same kind: of a generation that is in effect, or of one that is not. */
const isSameKind = (isApplied: boolean): Fragment =>
  sql`coalesce((fault->>'applied')::boolean, false) = ${isApplied}::boolean`

/** SQL: the attempts at a generation that ended with such a fault, with this one. */
const attemptsAt = (generation: number, isApplied: boolean): Fragment =>
  sql`CASE WHEN fault_generation = ${generation} AND ${isSameKind(isApplied)} THEN attempts + 1 ELSE 1 END`

const faultColumns = (fault: Fault, generation: number, isApplied: boolean): Fragment =>
  sql`fault = ${json({ ...fault, ...(isApplied ? { applied: true } : {}) })}::jsonb, fault_generation = ${generation},
      fault_since = CASE WHEN ${isSameKind(isApplied)} THEN coalesce(fault_since, now()) ELSE now() END,
      attempts = ${attemptsAt(generation, isApplied)}`

/**
 * CTEs that write a failure into the history.
 * @param names of CTEs with the load balancer's id: one with any failure, one with failures that nothing precedes
 */
function failureEvent(
  [any, first]: readonly [string, string],
  claim: Claim,
  { generation, effort, fault }: { generation: number; effort: Effort; fault: Fault },
): Fragment {
  return sql`
     newest AS (
       SELECT id, created_at FROM load_balancer_event WHERE load_balancer_id = ${claim.id} AND kind <> 'status_changed'
        ORDER BY created_at DESC, id DESC LIMIT 1),
     counted AS (
       UPDATE load_balancer_event o SET count = count + 1, updated_at = clock_timestamp()
         FROM ${trusted(first)} f, newest
        WHERE o.load_balancer_id = f.id AND o.created_at = newest.created_at AND o.id = newest.id
          AND o.kind = 'failed' AND o.detail->'fault' = ${json(fault)}::jsonb
        RETURNING o.id),
     failure AS (
       INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
       SELECT id, ${generation}::bigint, 'failed', ${json({ ...effort, fault })}::jsonb FROM ${trusted(any)} WHERE NOT EXISTS (SELECT FROM counted))`
}
