import { startLimitMs } from '../../../compute/placement.js'
import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Logger } from '../../../log/log.js'
import type { Claim } from '../../../queue/claim.js'
import type { Action } from '../../provider.js'
import { agentTarget, awaitAgent } from '../agent/agent.js'
import type { AgentTarget } from '../agent/connection.js'
import type { Observed } from '../plan/observation.js'
import { readPlacement, updateAmphora } from './amphora-rows.js'
import type { MachineParts } from './machine.js'
import { renewAgent, runUpgrade } from './upgrade.js'

type Acting = {
  parts: Pick<MachineParts, 'agents' | 'agentBundle' | 'masterKey' | 'placement'> & { database: Database; log: Logger }
  claim: Claim
  observed: Observed
  assertHeld: () => void
  note: (action: Action) => void
}

/** Longer than the agent of any driver's machine may take. */
export const AGENT_START_SECONDS = 130

/** Waits for the agent of a machine that was started. One that was never configured gets the controller's own first. */
export async function awaitStart({ parts, claim, observed, assertHeld }: Acting, amphoraId: string): Promise<void> {
  const { database, agents, masterKey, placement, log } = parts
  const amphora = observed.amphorae.find(({ id }) => id === amphoraId)
  const host = amphora?.managementAddress ?? (await recordedAddress(database, amphoraId))
  if (host === null) throw new Error(`Amphora ${amphoraId} has no management address`)
  const target = agentTarget(masterKey, amphoraId, host)
  const { driver } = await readPlacement(database, placement, amphoraId)
  const hello = await awaitAgent(agents, target, startLimitMs(placement, driver), assertHeld)
  const isNew = (amphora?.appliedSha256 ?? null) === null
  const { columns, failure } = await renewAgent(
    isNew ? parts : { ...parts, agentBundle: null },
    target,
    hello,
    assertHeld,
  )
  if (failure !== null) log.warn({ amphora: amphoraId, failure }, 'a new amphora keeps the agent of its image')
  await updateAmphora(database, claim, amphoraId, { status: 'ALLOCATED', ...columns })
}

/** Upgrades an agent in place; a failure is recorded in the amphora's row, and ends the attempt. */
export async function upgradeInPlace(
  { parts, claim, assertHeld, note }: Acting,
  amphoraId: string,
  target: AgentTarget,
): Promise<void> {
  assertHeld()
  const { columns, failure } = await runUpgrade(parts, target, assertHeld)
  await updateAmphora(parts.database, claim, amphoraId, columns)
  if (failure === null) {
    const bundle = parts.agentBundle?.sha256.slice(0, 8)
    return note({ amphora_id: amphoraId, action: 'upgraded', how: 'in place', reason: `its agent is now ${bundle}` })
  }
  parts.log.warn({ amphora: amphoraId, loadBalancer: claim.id, failure }, 'an agent was not upgraded')
}

async function recordedAddress(database: Database, amphoraId: string): Promise<string | null> {
  const row = await maybeOne(
    database,
    sql<{ address: string | null }>`SELECT lb_network_ip AS address FROM amphora WHERE id = ${amphoraId}`,
  )
  return row?.address ?? null
}
