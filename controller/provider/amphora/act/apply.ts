import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { AgentError, ApplyResult } from '../../../../amphora-agent/protocol/messages.js'
import type { Database } from '../../../database/connection.js'
import { type Claim, renewClaim } from '../../../queue/claim.js'
import { ClaimLost, ProvisioningFault } from '../../provider.js'
import type { AgentConnections, AgentTarget } from '../agent/connection.js'
import { AgentRefused } from '../agent/errors.js'

const APPLY_LIMIT_MS = 60_000

/** The amphora differs from the observation. After another observation the same may well succeed. */
export class StaleObservation extends Error {
  constructor(readonly fault: ProvisioningFault) {
    super(fault.message)
    this.name = 'StaleObservation'
  }
}

/**
 * Sends the desired state to an agent and waits until it is in effect.
 * @throws ProvisioningFault `configuration-refused` in the tool's own words (the former configuration keeps serving), StaleObservation, ClaimLost,
 *   AgentUnreachable
 */
export async function applyDesired(
  { agents, database }: { agents: AgentConnections; database: Database },
  claim: Claim,
  target: AgentTarget,
  desired: Desired,
): Promise<ApplyResult> {
  try {
    const applied = await agents.request(target, { verb: 'apply', desired }, { timeoutMs: APPLY_LIMIT_MS })
    if (applied.appliedGeneration === desired.generation && applied.appliedSha256 === desired.sha256) return applied
    throw new Error(`Amphora ${target.amphoraId} confirmed another configuration than it was sent`)
  } catch (error) {
    if (!(error instanceof AgentRefused)) throw error
    throw await meaningOf(error.error, () => renewClaim(database, claim))
  }
}

const diskFull = () =>
  new ProvisioningFault(
    'amphora-disk-full',
    'The disk of an amphora is full, so it cannot take in its configuration. It goes on with the former one; another takes its place when that lasts.',
  )

async function meaningOf(error: AgentError, stillHeld: () => Promise<boolean>): Promise<Error> {
  const words = error.details.trim() === '' ? error.message : `${error.message}\n${error.details.trim()}`
  switch (error.code) {
    case 'invalid-configuration':
    case 'rolled-back':
      return new ProvisioningFault('configuration-refused', words)
    case 'interface-missing':
      return new StaleObservation(new ProvisioningFault('interface-missing', words))
    case 'stale-generation':
    case 'stale-fence':
      // Of two holders the later one is right. When we are the latest, the amphora knows a future that the database has forgotten.
      if (!(await stillHeld())) return new ClaimLost()
      return new ProvisioningFault(
        'amphora-ahead',
        `An amphora has a newer state than the database, which may have been restored from a backup: ${error.message}`,
      )
    case 'malformed':
    case 'internal':
      if (/ENOSPC|no space left/i.test(words)) return diskFull()
      return new Error(`The agent answered ${error.code}: ${words}`)
  }
}
