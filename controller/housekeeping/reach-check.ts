import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'
import { recordAgent } from '../provider/amphora/act/amphora-rows.js'
import { agentTarget, probeAgent } from '../provider/amphora/agent/agent.js'
import type { AgentConnections } from '../provider/amphora/agent/connection.js'

export type ReachCheck = {
  database: Database
  agents: AgentConnections
  /** The controller host to which the machines of this process are bound; null if they are bound to none. */
  hostId: string | null
  masterKey: Buffer
  /** Silence after which an amphora counts as silent. */
  staleAfterSeconds: number
  /** How long an amphora that sends heartbeats may be unreachable. */
  replaceAfterSeconds: number
  log: Logger
}

/** Minimum time between two checks of the same agent. */
const CHECK_SECONDS = 30
const AT_ONCE = 8

type Row = { id: string; address: string }

/**
 * Probes agents that this host reaches and that have not been checked recently, over existing connections, to detect a
 * broken way in before the next change needs it. Any number of housekeepers share the work. Requests a recheck of load balancers with
 * an amphora that sends heartbeats but has been unreachable for too long.
 */
export async function checkReach(check: ReachCheck): Promise<void> {
  // Agents that do not answer take seconds each and are soon due again. The rest waits for the next call.
  const until = performance.now() + CHECK_SECONDS * 1000
  for (let rows = await takeDue(check); rows.length > 0; ) {
    await Promise.all(rows.map(row => probe(check, row)))
    rows = rows.length < AT_ONCE || performance.now() > until ? [] : await takeDue(check)
  }
  const overdue = await requestRechecks(check)
  if (overdue.length > 0)
    check.log.warn({ loadBalancers: overdue }, 'amphorae send heartbeats but cannot be reached; requesting a recheck')
}

function takeDue({ database, hostId }: ReachCheck): Promise<Row[]> {
  return many(
    database,
    sql<Row>`
     UPDATE amphora SET checked_at = now()
      WHERE id IN (SELECT id FROM amphora
                    WHERE status = 'ALLOCATED' AND lb_network_ip IS NOT NULL AND (host_id IS NULL OR host_id = ${hostId}::uuid)
                      AND (checked_at IS NULL OR checked_at < now() - ${CHECK_SECONDS} * interval '1 second')
                    ORDER BY checked_at NULLS FIRST LIMIT ${AT_ONCE} FOR UPDATE SKIP LOCKED)
      RETURNING id, lb_network_ip AS address`,
  )
}

async function probe({ database, agents, masterKey }: ReachCheck, { id, address }: Row): Promise<void> {
  await recordAgent(database, id, await probeAgent(agents, agentTarget(masterKey, id, address)))
}

/**
 * Only an amphora that sends heartbeats but is unreachable has a broken way in; if it is also silent, the network
 * may have failed. If the restart limiter delayed its replacement, the load balancer keeps to its back-off.
 */
async function requestRechecks({ database, staleAfterSeconds, replaceAfterSeconds }: ReachCheck): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
     UPDATE load_balancer lb SET recheck_at = now(), retry_at = least(lb.retry_at, now())
      WHERE (lb.retry_at IS NULL OR lb.fault->>'code' = 'amphora-unreachable')
        AND EXISTS (SELECT FROM amphora a JOIN amphora_health h ON h.amphora_id = a.id
                     WHERE a.load_balancer_id = lb.id AND a.status = 'ALLOCATED' AND a.replace_generation IS NULL
                       AND greatest(a.unreachable_since, h.heard_since) < now() - ${replaceAfterSeconds} * interval '1 second'
                       AND a.unreachable_since IS NOT NULL
                       AND h.last_seen > now() - ${staleAfterSeconds} * interval '1 second')
      RETURNING lb.id, pg_notify(${WAKE_CHANNEL}, lb.id::text)`,
  )
  return rows.map(({ id }) => id)
}
