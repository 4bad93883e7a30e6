import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { inTransaction, type Transaction } from '../../../database/transaction.js'

/** How many running but unreachable amphorae may be restarted or replaced within the window. */
export type RestartLimits = { perProject: number; overall: number; windowSeconds: number }

/** The limits grow with the number of amphorae, because more of them fail. */
const SHARE = 0.2

/**
 * How many more amphorae of a project may be restarted or replaced now: the smaller of what is left of the
 * project's limit and of the overall limit. Each limit is the configured number or a fifth of the allocated
 * amphorae, whichever is larger. Starting a machine that is not running is not limited, since it cannot do harm.
 */
export async function restartsLeft(
  database: Database | Transaction,
  projectId: string,
  limits: RestartLimits,
): Promise<number> {
  const row = await one(
    database,
    sql<{ own: number; all: number; ownFleet: number; fleet: number }>`
     WITH recent AS (SELECT project_id FROM amphora_restart WHERE created_at > now() - ${limits.windowSeconds} * interval '1 second'),
          fleet AS (SELECT lb.project_id FROM amphora a JOIN load_balancer lb ON lb.id = a.load_balancer_id WHERE a.status = 'ALLOCATED'),
          asked AS (SELECT ${projectId}::text AS project_id)
     SELECT (SELECT count(*)::int FROM recent, asked WHERE recent.project_id = asked.project_id) AS own,
            (SELECT count(*)::int FROM recent) AS all,
            (SELECT count(*)::int FROM fleet, asked WHERE fleet.project_id = asked.project_id) AS "ownFleet",
            (SELECT count(*)::int FROM fleet) AS fleet`,
  )
  const left = (limit: number, fleet: number, used: number) => Math.max(limit, Math.floor(fleet * SHARE)) - used
  return Math.max(0, Math.min(left(limits.perProject, row.ownFleet, row.own), left(limits.overall, row.fleet, row.all)))
}

/** Counts one restart or replacement across all workers. @returns false, without counting, if none is left */
export async function takeRestart(
  database: Database,
  projectId: string,
  amphoraId: string,
  limits: RestartLimits,
): Promise<boolean> {
  return inTransaction(database, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater restart limiter'))`)
    if ((await restartsLeft(trx, projectId, limits)) === 0) return false
    await execute(trx, sql`INSERT INTO amphora_restart (project_id, amphora_id) VALUES (${projectId}, ${amphoraId})`)
    return true
  })
}
