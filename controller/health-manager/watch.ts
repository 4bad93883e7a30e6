import type { Database } from '../database/connection.js'

/**
 * Load balancers whose amphora confirmed another configuration than the one on record, or asks for one (after a restart):
 * the worker is to look at them again. Never a reason for a failover.
 */
export async function recheckMismatches(database: Database): Promise<string[]> {
  const mismatched = await markForRecheck(
    database,
    `h.last_seen > greatest(a.updated_at, a.created_at) + interval '4 seconds' AND h.last_seen > now() - interval '10 seconds'
     AND (h.needs_apply OR h.config_hash IS DISTINCT FROM left(a.applied_sha256, 16))`,
    [],
  )
  return mismatched.map(({ id }) => id)
}

export type Silent = { id: string; amphoraIds: string[] }

/**
 * Load balancers with an amphora that has been silent too long: the worker asks compute and the agent for a second opinion
 * and mends what is broken. An amphora never heard by this database counts from when it was last changed.
 * @param passedOver amphorae that are left alone: heard by this process, or looked at a moment ago
 */
export async function recheckSilent(
  database: Database,
  staleAfterSeconds: number,
  passedOver: readonly string[],
): Promise<Silent[]> {
  return markForRecheck(
    database,
    `coalesce(h.last_seen, a.updated_at, a.created_at) < now() - ? * interval '1 second' AND NOT a.id = ANY(?::uuid[])`,
    [staleAfterSeconds, [...passedOver]],
  )
}

/** How many amphorae ought to be heard, and how many were within the time. */
export async function countHeard(
  database: Database,
  withinSeconds: number,
): Promise<{ expected: number; heard: number }> {
  const { rows } = await database.raw(
    `SELECT count(*)::int AS expected, count(*) FILTER (WHERE h.last_seen > now() - ? * interval '1 second')::int AS heard
       FROM amphora a LEFT JOIN amphora_health h ON h.amphora_id = a.id
      WHERE a.status IN ('ALLOCATED', 'READY')`,
    [withinSeconds],
  )
  return rows[0]
}

async function markForRecheck(
  database: Database,
  condition: string,
  bindings: readonly (number | string[])[],
): Promise<Silent[]> {
  const { rows } = await database.raw(
    `WITH due AS (
       SELECT lb.id, array_agg(a.id) AS amphora_ids
         FROM load_balancer lb
         JOIN amphora a ON a.load_balancer_id = lb.id AND a.status = 'ALLOCATED'
         LEFT JOIN amphora_health h ON h.amphora_id = a.id
        WHERE lb.recheck_at IS NULL AND lb.generation = lb.applied_generation AND lb.retry_at IS NULL AND ${condition}
        GROUP BY lb.id)
     UPDATE load_balancer lb SET recheck_at = now() FROM due
      WHERE lb.id = due.id AND lb.recheck_at IS NULL
      RETURNING lb.id, due.amphora_ids AS "amphoraIds"`,
    [...bindings],
  )
  return rows
}
