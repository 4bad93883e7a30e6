import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { type Fragment, sql } from '../database/sql.js'
import { noRecheckDue } from '../load-balancer/change/recheck-due.js'
import { backOffSeconds } from '../queue/back-off.js'

/**
 * Requests a recheck of load balancers with an amphora that confirmed a configuration other than the recorded
 * one, asks for its configuration (after a restart), or reports mismatches. Never triggers a failover by itself.
 * @returns their ids
 */
export async function recheckMismatches(database: Database, replaceAfterSeconds: number): Promise<string[]> {
  return markForRecheck(
    database,
    sql`h.last_seen > greatest(a.updated_at, a.created_at) + interval '4 seconds' AND h.last_seen > now() - interval '10 seconds'
     AND (h.needs_apply OR h.config_hash IS DISTINCT FROM left(a.applied_sha256, 16) OR h.mismatched_since > coalesce(a.updated_at, a.created_at)
          OR (h.mismatched_since < now() - ${replaceAfterSeconds} * interval '1 second' AND a.replace_generation IS NULL))`,
  )
}

export type Silent = { id: string; amphoraIds: string[] }

/**
 * Load balancers of one project to recheck at once because of silence: each occupies a worker slot for some
 * seconds.
 */
const RECHECKS_PER_PROJECT = 3

/**
 * Requests a recheck of load balancers with an amphora that has been silent too long. The worker then checks its
 * host and agent and repairs what does not serve. For an amphora never heard, silence counts from its row's last
 * update. If it fell silent after the last failed attempt at its load balancer, the recheck does not wait for the
 * next attempt.
 * @param skipped amphorae to ignore: heard by this process, or rechecked recently
 */
export async function recheckSilent(
  database: Database,
  staleAfterSeconds: number,
  skipped: readonly string[],
): Promise<Silent[]> {
  const silentSince = sql`coalesce(h.last_seen, a.updated_at, a.created_at) + ${staleAfterSeconds} * interval '1 second'`
  return many(
    database,
    sql<Silent>`
     WITH silent AS (
       SELECT lb.id, lb.project_id, array_agg(a.id) AS amphora_ids, min(${silentSince}) AS since
         FROM load_balancer lb
         JOIN amphora a ON a.load_balancer_id = lb.id AND a.status = 'ALLOCATED'
         LEFT JOIN amphora_health h ON h.amphora_id = a.id
        WHERE ${noRecheckDue('lb')} AND ${silentSince} < now() AND NOT a.id = ANY(${skipped}::uuid[])
          AND CASE WHEN lb.retry_at IS NULL THEN lb.generation = lb.applied_generation
                   ELSE lb.retry_at > now() AND ${silentSince} > ${LAST_ATTEMPT} END
        GROUP BY lb.id),
     due AS (
       SELECT id, amphora_ids, row_number() OVER (PARTITION BY project_id ORDER BY since, id) AS turn FROM silent)
     UPDATE load_balancer lb SET recheck_at = now(), retry_at = least(lb.retry_at, now()) FROM due
      WHERE lb.id = due.id AND ${noRecheckDue('lb')} AND due.turn <= ${RECHECKS_PER_PROJECT}
      RETURNING lb.id, due.amphora_ids AS "amphoraIds"`,
  )
}

/** SQL: when the last attempt failed, for a load balancer that waits for the next one. */
const LAST_ATTEMPT = sql`(lb.retry_at - ${backOffSeconds(sql`lb.attempts`)} * interval '1 second')`

/**
 * Retries load balancers whose unreachable amphora has returned: a network failure may have delayed the next attempt by
 * minutes.
 * @returns their ids
 */
export async function retryReturned(database: Database): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
     UPDATE load_balancer lb SET retry_at = now()
      WHERE lb.retry_at > now() AND lb.fault->>'code' IN ('amphora-unreachable', 'time-limit')
        AND EXISTS (SELECT FROM amphora a JOIN amphora_health h ON h.amphora_id = a.id
                     WHERE a.load_balancer_id = lb.id AND h.heard_since > ${LAST_ATTEMPT})
      RETURNING lb.id`,
  )
  return rows.map(({ id }) => id)
}

async function markForRecheck(database: Database, condition: Fragment): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
     UPDATE load_balancer lb SET recheck_at = now()
      WHERE ${noRecheckDue('lb')} AND lb.generation = lb.applied_generation AND lb.retry_at IS NULL
        AND EXISTS (SELECT FROM amphora a JOIN amphora_health h ON h.amphora_id = a.id
                     WHERE a.load_balancer_id = lb.id AND a.status = 'ALLOCATED' AND ${condition})
      RETURNING lb.id`,
  )
  return rows.map(({ id }) => id)
}
