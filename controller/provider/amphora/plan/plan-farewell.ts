import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { type Cast, isDraining } from './assign-roles.js'
import { basePortOf, desiredOf, handoverOf, type Rendering } from './desired-state.js'
import type { AmphoraSight } from './observation.js'
import type { Step } from './step.js'

/** A failover ends, whatever its pools allow. */
const LONGEST_DRAIN_SECONDS = 300
const HANDOVER_MARGIN_SECONDS = 60
/** Requests are short, most of the time. */
const SHORT_WAIT_SECONDS = 2
const LONG_WAIT_SECONDS = 60

export const otherOf = ({ serving }: Cast, { id, role }: AmphoraSight): AmphoraSight | null =>
  serving.find(amphora => amphora.id !== id && amphora.role !== role) ?? null

/**
 * How an amphora leaves. One that can be told keeps its connections while another one takes the VIP, and has a while to end them. One that
 * cannot loses its interface.
 * @param taker who has the VIP afterwards
 */
export function dismiss(rendering: Rendering, leaving: AmphoraSight, taker: AmphoraSight | null): Step[][] {
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

function beginHandover(rendering: Rendering, leaving: AmphoraSight, taker: AmphoraSight): Step[] {
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

const drain = ({ tree }: Rendering, { id: amphoraId }: AmphoraSight, waitSeconds: number): Step => ({
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
export function stateOf(rendering: Rendering, amphora: AmphoraSight): 'serves' | 'drains' | 'gone' {
  const { agent, plugged } = amphora
  if (isDraining(amphora)) return 'drains'
  const port = basePortOf(rendering, amphora)
  const served = agent.state === 'answers' && agent.drain === null && agent.appliedSha256 !== null
  return served && port !== undefined && plugged.includes(port.id) ? 'serves' : 'gone'
}

type Farewell = {
  stages: Step[][]
  /** They may be removed. */
  gone: AmphoraSight[]
  /** Every one of them was told before. */
  told: boolean
  /** Until the last connections have ended: here when something else has to wait for that, else later. */
  wait: (later: boolean) => Step[][]
}

/** What is still to be done with amphorae that nobody needs any more. */
export function planFarewell(rendering: Rendering, cast: Cast): Farewell {
  const those = (state: ReturnType<typeof stateOf>) =>
    cast.superfluous.filter(amphora => stateOf(rendering, amphora) === state)
  const [gone, drains, serves] = [those('gone'), those('drains'), those('serves')]
  const isSingle = rendering.tree.topology === 'SINGLE'
  const takerFor = (amphora: AmphoraSight) => (isSingle ? (cast.serving[0] ?? null) : otherOf(cast, amphora))
  /** It may still say that it has the VIP. */
  const mayClaim = ({ agent, plugged, ports }: AmphoraSight) =>
    !(agent.state === 'answers' && agent.drain !== null) && (isSingle || ports.some(port => plugged.includes(port.id)))
  const going = [...serves, ...gone.filter(mayClaim)]
  return {
    stages: going.flatMap(amphora => dismiss(rendering, amphora, takerFor(amphora))),
    gone,
    told: serves.length === 0,
    wait: later => {
      if (drains.length === 0) return []
      return later
        ? [[{ kind: 'look-again', seconds: 1 }]]
        : [drains.map(amphora => drain(rendering, amphora, LONG_WAIT_SECONDS))]
    },
  }
}

export function removal(amphorae: readonly AmphoraSight[]): Step[][] {
  const kinds = ['delete-machine', 'delete-ports', 'delete-amphora-row'] as const
  return kinds.map(kind => amphorae.map(({ id: amphoraId }) => ({ kind, amphoraId })))
}
