import type { Database } from '../database/connection.js'
import { execute, maybeOne } from '../database/query.js'
import { sql } from '../database/sql.js'
import { inTransaction, type Transaction } from '../database/transaction.js'
import type { Logger } from '../log/log.js'
import { markUpgrade, tendMarks } from '../provider/amphora/act/mark-upgrade.js'

export type AgentUpgrades = {
  database: Database
  /** Hash of the agent that this controller brings along. */
  bundle: string
  /** Whether to upgrade agents without being asked. */
  isAutomatic: boolean
  log: Logger
}

/** Workers that have not said for so long that they run do not count. */
const SEEN_SECONDS = 60
/** After a failure, the next amphora is tried so much later. */
const PAUSE_SECONDS = 600

/**
 * Sees to it that agents become those of this controller, one after another: warm amphorae first, then those without a
 * VIP. None is upgraded while workers with other agents run, as they would upgrade it back. Any number of housekeepers
 * share the work.
 */
export async function upgradeAgents({ database, bundle, isAutomatic, log }: AgentUpgrades): Promise<void> {
  await execute(
    database,
    sql`INSERT INTO controller_bundle (sha256) VALUES (${bundle}) ON CONFLICT (sha256) DO UPDATE SET seen_at = now()`,
  )
  await execute(database, sql`DELETE FROM controller_bundle WHERE seen_at < now() - interval '1 day'`)
  await tendMarks(database, bundle)
  if (!isAutomatic) return
  const amphora = await inTransaction(database, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater agent upgrades'))`)
    const next = await nextAmphora(trx, bundle)
    return next !== null && (await markUpgrade(trx, next, bundle)) ? next : null
  })
  if (amphora !== null) log.info({ amphora, agent: bundle.slice(0, 8) }, 'upgrading an agent in place')
}

/** Null if every agent is current, or an upgrade is under way, has failed lately, or must wait. */
async function nextAmphora(trx: Transaction, bundle: string): Promise<string | null> {
  const row = await maybeOne(
    trx,
    sql<{ id: string }>`
     SELECT a.id
       FROM amphora a
       LEFT JOIN load_balancer lb ON lb.id = a.load_balancer_id
       LEFT JOIN amphora_health h ON h.amphora_id = a.id
      WHERE a.agent_bundle <> ${bundle} AND a.replace_generation IS NULL AND a.unreachable_since IS NULL
        AND (a.status = 'READY' AND a.load_balancer_id IS NULL
          OR a.status = 'ALLOCATED' AND lb.change <> 'delete' AND lb.generation = lb.applied_generation AND lb.fault IS NULL)
        AND NOT EXISTS (SELECT FROM amphora WHERE upgrade_to IS NOT NULL)
        AND NOT EXISTS (SELECT FROM amphora
                         WHERE upgrade_fault ->> 'bundle' = ${bundle}
                           AND (upgrade_fault ->> 'at')::timestamptz > now() - ${PAUSE_SECONDS} * interval '1 second')
        AND NOT EXISTS (SELECT FROM controller_bundle
                         WHERE sha256 <> ${bundle} AND seen_at > now() - ${SEEN_SECONDS} * interval '1 second')
      ORDER BY a.upgrade_fault IS NOT NULL, a.load_balancer_id IS NOT NULL, coalesce(h.vrrp_master, false), a.created_at
      LIMIT 1`,
  )
  return row?.id ?? null
}
