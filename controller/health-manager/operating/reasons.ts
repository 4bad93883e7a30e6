import type { FailedCheck } from '../../../amphora-agent/protocol/checks.js'
import { type OperatingStatus, statusNeedsReason } from '../../load-balancer/schema/status.js'
import type { Assessment, Stored, StoredMember } from './assess.js'
import { checkText } from './check-words.js'
import type { Reported } from './picture.js'

/** Why objects are not ONLINE, by id; null for those that are, or that have no monitor. */
export type Reasons = {
  loadBalancer: string | null
  listeners: ReadonlyMap<string, string | null>
  pools: ReadonlyMap<string, string | null>
  members: ReadonlyMap<string, string | null>
}

type Seen = Reported & { failedChecks: ReadonlyMap<string, FailedCheck> }

/**
 * Says why each object has the status of the assessment: a member by its last check, a pool by its members, a load
 * balancer by its listeners and pools. Pure.
 */
export function reasonsOf(stored: Stored, seen: Seen, assessment: Assessment): Reasons {
  const listeners = new Map(
    stored.listeners.map(({ id, adminStateUp }) => [
      id,
      listenerReason(stored, adminStateUp, assessment.listeners.get(id)),
    ]),
  )
  const members = new Map(
    stored.pools.flatMap(pool =>
      pool.members.map(member => [member.id, memberReason(stored, pool, member, seen, assessment)] as const),
    ),
  )
  const pools = new Map(stored.pools.map(pool => [pool.id, poolReason(stored, pool, assessment, members)]))
  return { loadBalancer: loadBalancerReason(stored, assessment, { listeners, pools }), listeners, pools, members }
}

type StoredPool = Stored['pools'][number]

const DISABLED_ABOVE = 'The load balancer is disabled (admin_state_up is false)'

function listenerReason({ adminStateUp, settled }: Stored, enabled: boolean, status: OperatingStatus | undefined) {
  if (status === 'DEGRADED') return 'The connection limit is reached'
  if (status === 'ERROR') return 'The amphora does not serve the listener'
  if (status !== 'OFFLINE') return null
  if (!enabled) return 'The listener is disabled (admin_state_up is false)'
  if (!adminStateUp) return DISABLED_ABOVE
  return settled ? 'The amphora does not serve the listener' : 'The last change is not applied yet'
}

function memberReason(
  stored: Stored,
  pool: StoredPool,
  { id, adminStateUp, operatingStatus, reason }: StoredMember,
  { pools, members, failedChecks }: Seen,
  assessment: Assessment,
): string | null {
  const status = assessment.members.get(id)
  if (!statusNeedsReason(status)) return null
  // Its status is that of before, and so is the reason.
  if (members.get(id) === 'UNKNOWN') return reason
  if (status === 'ERROR') {
    const check = failedChecks.get(id)
    // The check may come in a later datagram than the state.
    return check === undefined && operatingStatus === 'ERROR' && reason !== null ? reason : checkText(check)
  }
  if (status === 'DRAINING') return 'The weight is 0: the member gets no new connections'
  if (!adminStateUp) return 'The member is disabled (admin_state_up is false)'
  if (!pools.has(pool.id)) return unusedReason(stored, pool)
  if (members.get(id) === undefined && !stored.settled) return 'The last change is not applied yet'
  return members.get(id) === 'MAINT'
    ? 'The amphora has put the member into maintenance'
    : 'The member is not checked yet'
}

function unusedReason({ adminStateUp, settled }: Stored, pool: StoredPool): string {
  if (!adminStateUp) return DISABLED_ABOVE
  if (!pool.adminStateUp) return 'The pool is disabled (admin_state_up is false)'
  return settled ? 'No enabled listener uses the pool' : 'The last change is not applied yet'
}

function poolReason(
  stored: Stored,
  pool: StoredPool,
  assessment: Assessment,
  reasons: ReadonlyMap<string, string | null>,
): string | null {
  const status = assessment.pools.get(pool.id)
  if (!statusNeedsReason(status)) return null
  if (status === 'OFFLINE') return unusedReason(stored, pool)
  const inStatus = (wanted: OperatingStatus) => pool.members.filter(({ id }) => assessment.members.get(id) === wanted)
  const down = inStatus('ERROR')
  const total = pool.members.length
  const [first] = down
  if (first === undefined) return 'No member takes traffic: all are disabled or have weight 0'
  const cause = `${addressOf(first)}: ${reasons.get(first.id)}`
  if (down.length === total) return `${total === 1 ? 'The only member is' : `All ${total} members are`} down: ${cause}`
  return `${down.length} of ${total} members ${down.length === 1 ? 'is' : 'are'} down: ${cause}`
}

/** The worst object gives the reason: listeners first, as nothing reaches the pools of one that does not serve. */
function loadBalancerReason(
  { adminStateUp }: Stored,
  { loadBalancer, listeners, pools }: Assessment,
  reasons: Pick<Reasons, 'listeners' | 'pools'>,
): string | null {
  if (!statusNeedsReason(loadBalancer)) return null
  if (!adminStateUp) return DISABLED_ABOVE
  const listener = [...listeners].find(([, status]) => status === loadBalancer)?.[0]
  if (listener !== undefined) return `Listener ${listener}: ${reasons.listeners.get(listener)}`
  const pool = [...pools].find(([, status]) => status === loadBalancer)?.[0]
  return pool === undefined ? null : `Pool ${pool}: ${reasons.pools.get(pool)}`
}

const addressOf = ({ address, protocolPort }: StoredMember): string =>
  `${address.includes(':') ? `[${address}]` : address}:${protocolPort}`
