import type { MemberState } from '../../../../amphora-agent/protocol/heartbeat.js'
import type { Reported } from '../../../health-manager/operating/picture.js'
import type { LoadBalancerTree, MemberNode, PoolNode } from '../../../load-balancer/tree/tree.js'

/** What OVN's probes say of a member; null while they say nothing yet. Undefined: OVN does not probe it. */
export type ProbeStatus = 'online' | 'offline' | 'error' | null | undefined

/**
 * What OVN shows of a load balancer, in the words in which amphorae report. OVN serves what is installed: an enabled
 * listener is open, whatever its members do.
 * @param statusOf a member of a pool with a monitor
 */
export function reportedByOvn(
  tree: LoadBalancerTree,
  statusOf: (pool: PoolNode, member: MemberNode) => ProbeStatus,
): Reported {
  const listeners = tree.listeners.filter(
    ({ adminStateUp, change }) => tree.adminStateUp && adminStateUp && change !== 'delete',
  )
  const used = new Set(listeners.map(({ defaultPoolId }) => defaultPoolId))
  const pools = tree.pools.filter(({ id, adminStateUp, change }) => used.has(id) && adminStateUp && change !== 'delete')
  const members = new Map(
    pools.flatMap(pool =>
      pool.members
        .filter(({ change }) => change !== 'delete')
        .map(member => [member.id, stateOf(pool, member, statusOf)] as const),
    ),
  )
  return {
    listeners: new Map(listeners.map(({ id }) => [id, 'OPEN'])),
    pools: new Map(pools.map(pool => [pool.id, isDown(pool, members) ? 'DOWN' : 'UP'])),
    members,
    failedChecks: new Map(),
  }
}

function stateOf(
  pool: PoolNode,
  member: MemberNode,
  statusOf: (pool: PoolNode, member: MemberNode) => ProbeStatus,
): MemberState {
  const { healthMonitor } = pool
  if (!member.adminStateUp) return 'MAINT'
  if (member.weight === 0) return 'DRAIN'
  if (healthMonitor === null || !healthMonitor.adminStateUp || healthMonitor.change === 'delete') return 'NO_CHECK'
  switch (statusOf(pool, member)) {
    case 'online':
      return 'UP'
    case 'offline':
    case 'error':
      return 'DOWN'
    case null:
      return 'UNKNOWN'
    case undefined:
      return 'NO_CHECK'
  }
}

/** As HAProxy has it: a pool is down when it has members, and none of them takes traffic. */
function isDown({ members }: PoolNode, states: ReadonlyMap<string, MemberState>): boolean {
  const own = members.flatMap(({ id }) => states.get(id) ?? [])
  return own.length > 0 && own.every(state => state === 'DOWN' || state === 'MAINT' || state === 'DRAIN')
}
