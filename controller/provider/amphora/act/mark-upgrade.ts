import type { Database } from '../../../database/connection.js'
import { execute, many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Transaction } from '../../../database/transaction.js'
import { noRecheckDue } from '../../../load-balancer/change/recheck-due.js'
import { WAKE_CHANNEL } from '../../../load-balancer/change/wake-channel.js'
import { MAX_FAULT } from './upgrade.js'

/** Time after which nobody waits for an upgrade in place any more. */
export const UPGRADE_LIMIT_SECONDS = 300

/**
 * Asks for the upgrade of an agent in place. The worker that has its load balancer carries it out, or housekeeping for a
 * warm amphora, which is not ready until then.
 * @param bundle hash of the agent that it should get
 * @returns false if the amphora does not exist, is being replaced or deleted, or is not ready yet
 */
export async function markUpgrade(
  database: Database | Transaction,
  amphoraId: string,
  bundle: string,
): Promise<boolean> {
  const marked = await many(
    database,
    sql`
     WITH marked AS (
       UPDATE amphora
          SET upgrade_to = ${bundle}, upgrade_asked_at = now(), upgrade_fault = NULL,
              status = CASE WHEN load_balancer_id IS NULL THEN 'BOOTING' ELSE status END
        WHERE id = ${amphoraId} AND replace_generation IS NULL
          AND (status = 'ALLOCATED' OR status = 'READY' AND (lease_until IS NULL OR lease_until < now()))
        RETURNING load_balancer_id),
     woken AS (
       UPDATE load_balancer SET recheck_at = now() WHERE id IN (SELECT load_balancer_id FROM marked) RETURNING id)
     SELECT (SELECT pg_notify(${WAKE_CHANNEL}, id::text) FROM woken) FROM marked`,
  )
  return marked.length > 0
}

/**
 * SQL: what kept workers from upgrading an amphora, as a sentence after a space; null if nobody knows. A load balancer
 * with a fault is mended first. Only a worker of its host upgrades an amphora that is bound to one.
 */
const WHY_NOT = sql`coalesce(
  (SELECT ' Its load balancer has a fault: ' || (lb.fault ->> 'text')
     FROM load_balancer lb WHERE lb.id = amphora.load_balancer_id AND lb.fault IS NOT NULL),
  (SELECT CASE WHEN max(process.version) IS NULL THEN ' No worker runs on its host ' || host.name || '.'
               ELSE ' The worker of its host ' || host.name || ' has version ' || max(process.version) || '.' END
     FROM controller_host host
     LEFT JOIN controller_process process
       ON process.host_id = host.id AND process.name = 'worker' AND process.last_seen_at > now() - interval '15 seconds'
    WHERE host.id = amphora.host_id
    GROUP BY host.name
   HAVING max(process.version) IS DISTINCT FROM (SELECT max(version) FROM controller_process WHERE name = 'worker')))`

/**
 * Wakes the workers of load balancers whose marks were overlooked, and gives up those that nobody carries out. What a
 * worker holds now, or will try again after a failure, is left to it.
 * @param bundle hash of this controller's agent
 */
export async function tendMarks(database: Database, bundle: string): Promise<void> {
  await execute(
    database,
    sql`
     UPDATE amphora
        SET upgrade_to = NULL, upgrade_asked_at = NULL,
            upgrade_fault = jsonb_build_object('bundle', upgrade_to, 'at', now(), 'text', left(
              'No worker with the agent ' || left(upgrade_to, 8) || ${` upgraded it within ${UPGRADE_LIMIT_SECONDS / 60} minutes.`}
              || coalesce(${WHY_NOT}, ''), ${MAX_FAULT}))
      WHERE upgrade_asked_at < now() - ${UPGRADE_LIMIT_SECONDS} * interval '1 second'`,
  )
  await execute(
    database,
    sql`
     UPDATE load_balancer lb SET recheck_at = now()
      WHERE ${noRecheckDue('lb')} AND lb.retry_at IS NULL AND (lb.lease_until IS NULL OR lb.lease_until < now())
        AND lb.id IN (SELECT load_balancer_id FROM amphora WHERE upgrade_to = ${bundle})
     RETURNING pg_notify(${WAKE_CHANNEL}, lb.id::text)`,
  )
}
