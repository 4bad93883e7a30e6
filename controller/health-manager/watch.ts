import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { type Fragment, sql } from '../database/sql.js'
import { backOffSeconds } from '../queue/back-off.js'

/**
 * Load balancers whose amphora confirmed another configuration than the one on record, or asks for one (after a restart):
 * the worker is to recheck them. Never a reason for a failover.
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

/** Load balancers of one project that are rechecked together because of silence: each recheck holds a slot of a worker for some seconds. */
const LOOKS_PER_PROJECT = 3

/**
 * Load balancers with an amphora that has been silent too long: the worker asks its host and its agent for a second opinion and repairs what
 * does not serve. An amphora never heard by this database counts from when it was last changed. One that fell silent after the last attempt
 * at its load balancer failed is news: it does not wait for the next attempt.
 * @param passedOver amphorae that are left alone: heard by this process, or rechecked a moment ago
 */
export async function recheckSilent(
  database: Database,
  staleAfterSeconds: number,
  passedOver: readonly string[],
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
        WHERE lb.recheck_at IS NULL AND ${silentSince} < now() AND NOT a.id = ANY(${passedOver}::uuid[])
          AND CASE WHEN lb.retry_at IS NULL THEN lb.generation = lb.applied_generation
                   ELSE lb.retry_at > now() AND ${silentSince} > ${LAST_ATTEMPT} END
        GROUP BY lb.id),
     due AS (
       SELECT id, amphora_ids, row_number() OVER (PARTITION BY project_id ORDER BY since, id) AS turn FROM silent)
     UPDATE load_balancer lb SET recheck_at = now(), retry_at = least(lb.retry_at, now()) FROM due
      WHERE lb.id = due.id AND lb.recheck_at IS NULL AND due.turn <= ${LOOKS_PER_PROJECT}
      RETURNING lb.id, due.amphora_ids AS "amphoraIds"`,
  )
}

/** SQL: when the last attempt at a load balancer that waits for the next one failed. */
const LAST_ATTEMPT = sql`(lb.retry_at - ${backOffSeconds(sql`lb.attempts`)} * interval '1 second')`

/**
 * Load balancers that wait to try again to reach an amphora that has come back since: a dead network may have put off the next attempt by minutes.
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
      WHERE lb.recheck_at IS NULL AND lb.generation = lb.applied_generation AND lb.retry_at IS NULL
        AND EXISTS (SELECT FROM amphora a JOIN amphora_health h ON h.amphora_id = a.id
                     WHERE a.load_balancer_id = lb.id AND a.status = 'ALLOCATED' AND ${condition})
      RETURNING lb.id`,
  )
  return rows.map(({ id }) => id)
}
