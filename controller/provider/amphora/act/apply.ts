import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { AgentError, ApplyResult } from '../../../../amphora-agent/protocol/messages.js'
import type { Database } from '../../../database/connection.js'
import { type Claim, renewClaim } from '../../../queue/claim.js'
import { ClaimLost, ProvisioningFault } from '../../provider.js'
import type { AgentConnections, AgentTarget } from '../agent/connection.js'
import { AgentRefused } from '../agent/errors.js'

const APPLY_LIMIT_MS = 60_000

/** The amphora differs from the observation. A retry after a new observation may succeed. */
export class StaleObservation extends Error {
  constructor(readonly fault: ProvisioningFault) {
    super(fault.message)
    this.name = 'StaleObservation'
  }
}

/**
 * Sends the desired state to an agent and waits until it is in effect.
 * @throws ProvisioningFault `configuration-refused` with the tool's own message (the previous configuration stays in
 *   effect), StaleObservation, ClaimLost, AgentUnreachable
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
    throw new Error(`Amphora ${target.amphoraId} confirmed a configuration other than the one sent`)
  } catch (error) {
    if (!(error instanceof AgentRefused)) throw error
    throw await toError(error.error, () => renewClaim(database, claim))
  }
}

const diskFull = () =>
  new ProvisioningFault(
    'amphora-disk-full',
    'The disk of an amphora is full, so it keeps its previous configuration. The amphora is replaced if this lasts.',
  )

async function toError(error: AgentError, stillHeld: () => Promise<boolean>): Promise<Error> {
  const words = error.details.trim() === '' ? error.message : `${error.message}\n${error.details.trim()}`
  switch (error.code) {
    case 'invalid-configuration':
    case 'rolled-back':
      return new ProvisioningFault('configuration-refused', words)
    case 'interface-missing':
      return new StaleObservation(new ProvisioningFault('interface-missing', words))
    case 'stale-generation':
    case 'stale-fence':
      // The latest holder of the claim wins. If that is this worker, the database has lost a later state.
      if (!(await stillHeld())) return new ClaimLost()
      return new ProvisioningFault(
        'amphora-ahead',
        `An amphora already has a newer configuration, possibly because the service was restored from a backup: ${error.message}`,
      )
    case 'malformed':
    case 'upgrade-refused':
    case 'internal':
      if (/ENOSPC|no space left/i.test(words)) return diskFull()
      return new Error(`The agent answered ${error.code}: ${words}`)
  }
}
