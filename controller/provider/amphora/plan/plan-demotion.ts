import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { isDraining, type RoleAssignment } from './assign-roles.js'
import { basePortOf, desiredOf, handoverOf, type Rendering } from './desired-state.js'
import type { ObservedAmphora } from './observation.js'
import type { Step } from './step.js'

/** A failover ends, whatever its pools allow. */
const LONGEST_DRAIN_SECONDS = 300
const HANDOVER_MARGIN_SECONDS = 60
/** Requests are short, most of the time. */
const SHORT_WAIT_SECONDS = 2
const LONG_WAIT_SECONDS = 60

export const otherOf = ({ serving }: RoleAssignment, { id, role }: ObservedAmphora): ObservedAmphora | null =>
  serving.find(amphora => amphora.id !== id && amphora.role !== role) ?? null

/**
 * How an amphora leaves. If its agent answers, it steps down: another one takes the VIP, and its connections get a while to end. If not, its
 * VIP port is unplugged.
 * @param taker who has the VIP afterwards
 */
export function demote(rendering: Rendering, leaving: ObservedAmphora, taker: ObservedAmphora | null): Step[][] {
  const { tree } = rendering
  const isSingle = tree.topology === 'SINGLE'
  const announce: Step[] = isSingle && taker !== null ? [{ kind: 'announce-vip', amphoraId: taker.id }] : []
  const standingBy = desiredOf(rendering, leaving, isSingle || taker === null ? [leaving] : [leaving, taker], true)
  const amphoraId = leaving.id
  if (standingBy === null || stateOf(rendering, leaving) === 'gone') {
    const port = basePortOf(rendering, leaving)
    const portId = port !== undefined && leaving.plugged.includes(port.id) ? port.id : null
    return [[], [{ kind: 'silence-amphora', amphoraId, portId }], announce]
  }
  const awaitVip: Step[] =
    isSingle || taker === null ? [] : [{ kind: 'await-vip', amphoraId: taker.id, vips: vipsOf(tree) }]
  return [
    taker === null ? [] : beginHandover(rendering, leaving, taker),
    [{ kind: 'demote-amphora', amphoraId, standingBy }],
    [...awaitVip, ...announce],
    [drain(rendering, leaving, SHORT_WAIT_SECONDS)],
  ]
}

const vipsOf = ({ vip, additionalVips }: LoadBalancerTree) => [vip, ...additionalVips].map(({ address }) => address)

function beginHandover(rendering: Rendering, leaving: ObservedAmphora, taker: ObservedAmphora): Step[] {
  if (taker.agent.state !== 'answers') return []
  const seconds = drainSeconds(rendering.tree) + HANDOVER_MARGIN_SECONDS
  const gives = handoverOf(rendering, 'leaving', leaving, taker, seconds)
  const takes = handoverOf(rendering, 'taking-over', taker, leaving, seconds)
  if (gives === null || takes === null) return []
  const parts = [
    { amphoraId: leaving.id, handover: gives },
    { amphoraId: taker.id, handover: takes },
  ]
  return [{ kind: 'begin-handover', parts }]
}

const drain = ({ tree }: Rendering, { id: amphoraId }: ObservedAmphora, waitSeconds: number): Step => ({
  kind: 'drain-amphora',
  amphoraId,
  seconds: drainSeconds(tree),
  waitSeconds,
})

/** How long the connections of an amphora that leaves may last: as long as those of a member that leaves the most patient pool. */
function drainSeconds({ pools }: LoadBalancerTree): number {
  const delays = pools.map(pool => pool.deregistrationDelay)
  return delays.length === 0 ? SHORT_WAIT_SECONDS : Math.min(LONGEST_DRAIN_SECONDS, Math.max(...delays))
}

/** `serves`: it may still have the VIP. `drains`: its last connections end. `gone`: nothing is lost with it. */
export function stateOf(rendering: Rendering, amphora: ObservedAmphora): 'serves' | 'drains' | 'gone' {
  const { agent, plugged } = amphora
  if (isDraining(amphora)) return 'drains'
  const port = basePortOf(rendering, amphora)
  const served = agent.state === 'answers' && agent.drain === null && agent.appliedSha256 !== null
  return served && port !== undefined && plugged.includes(port.id) ? 'serves' : 'gone'
}

type Demotion = {
  stages: Step[][]
  /** They may be removed. */
  gone: ObservedAmphora[]
  /** Every one of them has stepped down before. */
  demoted: boolean
  /** Until the last connections have ended: here when something else has to wait for that, else later. */
  wait: (later: boolean) => Step[][]
}

/** The remaining steps for amphorae that are no longer needed. */
export function planDemotion(rendering: Rendering, roles: RoleAssignment): Demotion {
  const those = (state: ReturnType<typeof stateOf>) =>
    roles.superfluous.filter(amphora => stateOf(rendering, amphora) === state)
  const [gone, drains, serves] = [those('gone'), those('drains'), those('serves')]
  const isSingle = rendering.tree.topology === 'SINGLE'
  const takerFor = (amphora: ObservedAmphora) => (isSingle ? (roles.serving[0] ?? null) : otherOf(roles, amphora))
  /** It may still say that it has the VIP. */
  const mayClaim = ({ agent, plugged, ports }: ObservedAmphora) =>
    !(agent.state === 'answers' && agent.drain !== null) && (isSingle || ports.some(port => plugged.includes(port.id)))
  const going = [...serves, ...gone.filter(mayClaim)]
  return {
    stages: going.flatMap(amphora => demote(rendering, amphora, takerFor(amphora))),
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
