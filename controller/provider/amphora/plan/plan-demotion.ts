import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { isDraining, type RoleAssignment } from './assign-roles.js'
import { basePortOf, desiredState, handoverFor, type Rendering } from './desired-state.js'
import type { ObservedAmphora } from './observation.js'
import type { Step } from './step.js'

/** Bounds a failover, whatever the pools' deregistration delays. */
const MAX_DRAIN_SECONDS = 300
const HANDOVER_MARGIN_SECONDS = 60
/** Enough for most requests. */
const SHORT_WAIT_SECONDS = 2
const LONG_WAIT_SECONDS = 60

export const peerOf = ({ serving }: RoleAssignment, { id, role }: ObservedAmphora): ObservedAmphora | null =>
  serving.find(amphora => amphora.id !== id && amphora.role !== role) ?? null

/**
 * Steps that take the VIP from an amphora. If its agent answers, another amphora takes over the VIP, and existing
 * connections get time to end. Otherwise its VIP port is unplugged.
 * @param taker the amphora that holds the VIP afterwards
 */
export function demote(rendering: Rendering, leaving: ObservedAmphora, taker: ObservedAmphora | null): Step[][] {
  const { tree } = rendering
  const isSingle = tree.topology === 'SINGLE'
  const announce: Step[] = isSingle && taker !== null ? [{ kind: 'announce-vip', amphoraId: taker.id }] : []
  const standby = desiredState(rendering, leaving, isSingle || taker === null ? [leaving] : [leaving, taker], true)
  const amphoraId = leaving.id
  if (standby === null || demotionState(rendering, leaving) === 'gone') {
    const port = basePortOf(rendering, leaving)
    const portId = port !== undefined && leaving.plugged.includes(port.id) ? port.id : null
    return [[], [{ kind: 'silence-amphora', amphoraId, portId }], announce]
  }
  const awaitVip: Step[] =
    isSingle || taker === null ? [] : [{ kind: 'await-vip', amphoraId: taker.id, vips: vipAddresses(tree) }]
  return [
    taker === null ? [] : beginHandover(rendering, leaving, taker),
    [{ kind: 'demote-amphora', amphoraId, standby }],
    [...awaitVip, ...announce],
    [drain(rendering, leaving, SHORT_WAIT_SECONDS)],
  ]
}

const vipAddresses = ({ vip, additionalVips }: LoadBalancerTree) =>
  [vip, ...additionalVips].map(({ address }) => address)

function beginHandover(rendering: Rendering, leaving: ObservedAmphora, taker: ObservedAmphora): Step[] {
  if (taker.agent.state !== 'answers') return []
  const seconds = drainSeconds(rendering.tree) + HANDOVER_MARGIN_SECONDS
  const leavingPart = handoverFor(rendering, 'leaving', leaving, taker, seconds)
  const takingPart = handoverFor(rendering, 'taking-over', taker, leaving, seconds)
  if (leavingPart === null || takingPart === null) return []
  const parts = [
    { amphoraId: leaving.id, handover: leavingPart },
    { amphoraId: taker.id, handover: takingPart },
  ]
  return [{ kind: 'begin-handover', parts }]
}

const drain = ({ tree }: Rendering, { id: amphoraId }: ObservedAmphora, waitSeconds: number): Step => ({
  kind: 'drain-amphora',
  amphoraId,
  seconds: drainSeconds(tree),
  waitSeconds,
})

/** How long connections of a leaving amphora may last: the longest deregistration delay of any pool. */
function drainSeconds({ pools }: LoadBalancerTree): number {
  const delays = pools.map(pool => pool.deregistrationDelay)
  return delays.length === 0 ? SHORT_WAIT_SECONDS : Math.min(MAX_DRAIN_SECONDS, Math.max(...delays))
}

/** `serves`: it may still hold the VIP. `drains`: its last connections are ending. `gone`: removing it cuts nothing. */
export function demotionState(rendering: Rendering, amphora: ObservedAmphora): 'serves' | 'drains' | 'gone' {
  const { agent, plugged } = amphora
  if (isDraining(amphora)) return 'drains'
  const port = basePortOf(rendering, amphora)
  const served = agent.state === 'answers' && agent.drain === null && agent.appliedSha256 !== null
  return served && port !== undefined && plugged.includes(port.id) ? 'serves' : 'gone'
}

type Demotion = {
  stages: Step[][]
  /** Amphorae that may be removed. */
  gone: ObservedAmphora[]
  /** True if no superfluous amphora may still hold the VIP. */
  demoted: boolean
  /** Waits for the last connections: in a later run, or in this plan if a replacement depends on it. */
  wait: (later: boolean) => Step[][]
}

/** The remaining steps for superfluous amphorae. */
export function planDemotion(rendering: Rendering, roles: RoleAssignment): Demotion {
  const inState = (state: ReturnType<typeof demotionState>) =>
    roles.superfluous.filter(amphora => demotionState(rendering, amphora) === state)
  const [gone, drains, serves] = [inState('gone'), inState('drains'), inState('serves')]
  const isSingle = rendering.tree.topology === 'SINGLE'
  const takerFor = (amphora: ObservedAmphora) => (isSingle ? (roles.serving[0] ?? null) : peerOf(roles, amphora))
  /** It may still claim the VIP. */
  const mayClaim = ({ agent, plugged, ports }: ObservedAmphora) =>
    !(agent.state === 'answers' && agent.drain !== null) && (isSingle || ports.some(port => plugged.includes(port.id)))
  const leaving = [...serves, ...gone.filter(mayClaim)]
  return {
    stages: leaving.flatMap(amphora => demote(rendering, amphora, takerFor(amphora))),
    gone,
    demoted: serves.length === 0,
    wait: later => {
      if (drains.length === 0) return []
      return later
        ? [[{ kind: 'observe-again', seconds: 1 }]]
        : [drains.map(amphora => drain(rendering, amphora, LONG_WAIT_SECONDS))]
    },
  }
}

export function removal(amphorae: readonly ObservedAmphora[]): Step[][] {
  const kinds = ['delete-machine', 'delete-ports', 'delete-amphora-row'] as const
  return kinds.map(kind => amphorae.map(({ id: amphoraId }) => ({ kind, amphoraId })))
}
