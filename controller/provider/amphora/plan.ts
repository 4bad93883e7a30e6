import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import type { Handover } from '../../../amphora-agent/protocol/handover.js'
import type { LoadBalancerTree } from '../../load-balancer/tree.js'
import { ProvisioningFault } from '../provider.js'
import { assignRoles, type Cast, isDraining, isLost, type Replacement } from './assign-roles.js'
import type { AmphoraSight, Observed } from './observed.js'
import { isHeard, outOfReach, restartLimit, type UnreachableFacts, verdictOn } from './plan-unreachable.js'
import type { HaproxySettings } from './rendering/facts.js'
import type { Role } from './topology.js'
import { covers, portOf, type WantedPort, wantedPorts } from './wanted-ports.js'
import { basePortOf, desiredOf, handoverOf, isInEffect, type Rendering } from './wanted-state.js'

/** One act that brings a load balancer nearer to its wanted state. Every act may be repeated. */
export type Step =
  | { kind: 'ensure-vip-port' }
  | { kind: 'release-vip-port' }
  /** A warm amphora when there is one, else the row of a new one. */
  | { kind: 'allocate-amphora'; role: Role }
  | { kind: 'create-machine'; amphoraId: string }
  /** For a machine that runs but is neither heard nor reached, and does not serve. */
  | { kind: 'restart-machine'; amphoraId: string }
  /** Marks one that is heard but cannot be reached: another takes its place, as in a failover that was asked for. */
  | { kind: 'replace-amphora'; amphoraId: string }
  | { kind: 'attach-port'; amphoraId: string; port: WantedPort }
  | { kind: 'await-agent'; amphoraId: string }
  | { kind: 'apply'; amphoraId: string; desired: Desired }
  /** Both learn how packets find the amphora that has their connection, before the VIP moves from one to the other. */
  | { kind: 'begin-handover'; parts: readonly { amphoraId: string; handover: Handover }[] }
  /** It is on its way out, and gives the VIP up by itself. */
  | { kind: 'demote-amphora'; amphoraId: string; standingBy: Desired }
  /** By VRRP, which takes a moment. */
  | { kind: 'await-vip'; amphoraId: string; vips: readonly string[] }
  /** It accepts nothing any more; what is under way has so many seconds to end. */
  | { kind: 'drain-amphora'; amphoraId: string; seconds: number; waitSeconds: number }
  /** It is on its way out, and loses the interface of the VIP. */
  | { kind: 'silence-amphora'; amphoraId: string; portId: string | null }
  /** Something ends by itself soon. */
  | { kind: 'look-again'; seconds: number }
  /** Neighbours learn again where the VIP is. */
  | { kind: 'announce-vip'; amphoraId: string }
  | { kind: 'detach-port'; amphoraId: string; portId: string }
  | { kind: 'delete-machine'; amphoraId: string }
  | { kind: 'delete-ports'; amphoraId: string }
  | { kind: 'delete-amphora-row'; amphoraId: string }

/** The steps of a stage are independent of each other; a stage begins when the one before it has succeeded. */
export type Plan = {
  stages: readonly (readonly Step[])[]
  /** When all of it succeeds, the wanted state is reached; otherwise the world has to be looked at again. */
  settles: boolean
}

export type PlanFacts = UnreachableFacts & {
  fence: number
  /** How many amphorae of the project may be restarted or replaced now; see restart-limiter.ts. */
  restartsLeft: number
  haproxy: HaproxySettings
}

/**
 * The next steps from the world as it was seen towards the tree; no stage when they agree. Pure: the same arguments give the same plan.
 * @throws ProvisioningFault when nothing can be done about what keeps them apart
 */
export function plan(tree: LoadBalancerTree, seen: Observed, facts: PlanFacts): Plan {
  if (tree.change === 'delete') {
    return { stages: stagesOf([...removal(seen.amphorae), [{ kind: 'release-vip-port' }]]), settles: true }
  }
  const cast = assignRoles(tree.topology, seen.amphorae)
  const foundations: Step[] = [...vipPortSteps(tree, seen), ...cast.missing.map(allocate)]
  if (foundations.length > 0) return { stages: [foundations], settles: false }

  const { serving, replacement } = cast
  const { fence, haproxy } = facts
  const rendering: Rendering = { tree, seen, fence, haproxy }
  const works = inspect(tree, seen, replacement === null ? serving : [...serving, replacement.successor], facts)
  const ready = works.filter(work => work.state === 'ready').map(work => work.amphora)
  const builds = works.filter(work => work.state === 'build')
  const troubles = works.filter(work => work.state === 'trouble')
  const [trouble] = troubles
  const applies = planApplies(rendering, cast, ready)
  const farewell = planFarewell(rendering, cast)
  // One that has left a pair must not speak VRRP any more when the others are told so; the successor of a single one has to be told first.
  const [before, after] = tree.topology === 'SINGLE' ? [[], farewell.stages] : [farewell.stages, []]

  if (builds.length > 0) {
    // The amphorae that serve need not wait for one that is being made.
    const first = [...applies.slice(-1), ...builds.flatMap(build => build.make)]
    const rest = [first, builds.flatMap(build => build.attach), builds.flatMap(build => build.awaitAgent)]
    return { stages: stagesOf([...before, ...applies.slice(0, -1).map(step => [step]), ...rest]), settles: false }
  }
  if (replacement !== null && ready.includes(replacement.successor)) {
    if (trouble === undefined || isLost(replacement.leaving)) {
      return { stages: stagesOf(takeOver(rendering, cast, replacement)), settles: false }
    }
  }
  // One after the other: a configuration that the first refuses never reaches the next.
  const stages = stagesOf([
    ...before,
    ...applies.map(step => [step]),
    ready.flatMap(amphora => leftovers(tree, seen, amphora)),
  ])
  if (trouble === undefined) {
    const done = serving.every(amphora => !amphora.replacing)
    const removals = [...after, ...removal(farewell.gone), ...farewell.wait(done)]
    return { stages: stagesOf([...stages, ...removals]), settles: done && farewell.told }
  }
  if (stages.length > 0) return { stages, settles: false }
  const isApplied = tree.generation <= tree.appliedGeneration && serving.every(({ replacing }) => !replacing)
  if (isApplied && troubles.every(({ serves }) => serves)) return { stages, settles: true }
  throw trouble.fault
}

const allocate = (role: Role): Step => ({ kind: 'allocate-amphora', role })

/** A failover ends, whatever its pools allow. */
const LONGEST_DRAIN_SECONDS = 300
const HANDOVER_MARGIN_SECONDS = 60
/** Requests are short, most of the time. */
const SHORT_WAIT_SECONDS = 2
const LONG_WAIT_SECONDS = 60

const stagesOf = (stages: readonly (readonly Step[])[]) => stages.filter(stage => stage.length > 0)

function vipPortSteps(tree: LoadBalancerTree, seen: Observed): Step[] {
  if (seen.vipPort !== null) return []
  if (tree.vip.ownsPort) return [{ kind: 'ensure-vip-port' }]
  throw new ProvisioningFault(
    'vip-port-missing',
    `The port ${tree.vip.portId ?? ''} that was given for the VIP does not exist any more.`,
  )
}

type Work =
  | { state: 'ready'; amphora: AmphoraSight }
  | { state: 'build'; make: Step[]; attach: Step[]; awaitAgent: Step[] }
  /** `serves`: nothing is amiss but that it cannot be told anything. */
  | { state: 'trouble'; serves: boolean; fault: ProvisioningFault }
  | { state: 'lost' }

function inspect(tree: LoadBalancerTree, seen: Observed, serving: readonly AmphoraSight[], facts: PlanFacts): Work[] {
  let restarts = 0
  return serving.map((amphora): Work => {
    const { id: amphoraId, machine, agent, status, silentSeconds } = amphora
    const wanted = wantedPorts(tree, seen.subnets, amphoraId)
    const awaitAgent: Step[] = [{ kind: 'await-agent', amphoraId }]
    const outgrown = wanted.flatMap(want => {
      const port = portOf(amphora, want)
      return port === undefined || covers(port, want) ? [] : [detach(amphora, port.id)]
    })
    const rebuild = (kind: 'create-machine' | 'restart-machine'): Work => ({
      state: 'build',
      make: [{ kind, amphoraId }, ...outgrown],
      attach: wanted.map(port => ({ kind: 'attach-port', amphoraId, port })),
      awaitAgent,
    })
    if (isLost(amphora)) return { state: 'lost' }
    if (machine !== 'running') return rebuild('create-machine')
    if (agent.state === 'unreachable' && (status === 'ALLOCATED' || silentSeconds > facts.staleAfterSeconds)) {
      const verdict = verdictOn(amphora, tree, seen.amphorae, facts)
      if (verdict === 'wait')
        return { state: 'trouble', serves: amphora.serves === true, fault: outOfReach(amphora, facts) }
      restarts += 1
      if (restarts > facts.restartsLeft) return { state: 'trouble', serves: false, fault: restartLimit() }
      return verdict === 'restart' ? rebuild('restart-machine') : replace(amphoraId)
    }
    if (isHeard(amphora, facts) && amphora.mismatchedSeconds > facts.replaceAfterSeconds && !amphora.replacing) {
      restarts += 1
      if (restarts <= facts.restartsLeft) return replace(amphoraId)
    }
    const missing = wanted.filter(want => !isAttached(amphora, want))
    const attach = missing.map((port): Step => ({ kind: 'attach-port', amphoraId, port }))
    if (status !== 'ALLOCATED') return { state: 'build', make: outgrown, attach, awaitAgent }
    if (missing.length > 0) return { state: 'build', make: outgrown, attach, awaitAgent: [] }
    return { state: 'ready', amphora }
  })
}

const replace = (amphoraId: string): Work => ({
  state: 'build',
  make: [{ kind: 'replace-amphora', amphoraId }],
  attach: [],
  awaitAgent: [],
})

function isAttached(amphora: AmphoraSight, want: WantedPort): boolean {
  const port = portOf(amphora, want)
  return port !== undefined && covers(port, want) && amphora.plugged.includes(port.id)
}

const detach = (amphora: AmphoraSight, portId: string) => ({
  kind: 'detach-port' as const,
  amphoraId: amphora.id,
  portId,
})

/** Ports and cards that no member needs any more, once the configuration does not name them. */
function leftovers(tree: LoadBalancerTree, seen: Observed, amphora: AmphoraSight): Step[] {
  const needed = wantedPorts(tree, seen.subnets, amphora.id).map(want => portOf(amphora, want)?.id)
  const had = new Set([...amphora.ports.map(port => port.id), ...amphora.plugged])
  return [...had].filter(portId => !needed.includes(portId)).map(portId => detach(amphora, portId))
}

/** In the order of the topology; but one that comes in comes last, when the other of the pair speaks to it already. */
function planApplies(rendering: Rendering, cast: Cast, ready: readonly AmphoraSight[]): Step[] {
  const comesIn = ({ role }: AmphoraSight) => cast.superfluous.some(amphora => amphora.role === role)
  return cast.serving
    .filter(amphora => ready.includes(amphora))
    .toSorted((a, b) => Number(comesIn(a)) - Number(comesIn(b)))
    .flatMap(amphora => applyUnlessInEffect(rendering, amphora, cast.serving))
}

function applyUnlessInEffect(rendering: Rendering, amphora: AmphoraSight, group: readonly AmphoraSight[]): Step[] {
  const desired = desiredOf(rendering, amphora, group, false)
  return desired === null || isInEffect(amphora, desired) ? [] : [{ kind: 'apply', amphoraId: amphora.id, desired }]
}

/**
 * The successor is ready: it serves before it holds the VIP, so that the VIP moves from one that serves to one that serves. A single one takes
 * the VIP before the other gives it up: their neighbours follow who spoke last. In a pair the one that stays takes it; the successor is let in
 * once the other is out and the one that stays was told, for two that do not hear each other would both take the VIP.
 */
function takeOver(rendering: Rendering, cast: Cast, { leaving, successor }: Replacement): Step[][] {
  const group = [...cast.serving.filter(amphora => amphora !== leaving), successor]
  const standingBy = desiredOf(rendering, successor, group, true)
  if (standingBy === null) {
    throw new ProvisioningFault('pair-incomplete', 'The VRRP address of the other amphora is not known.')
  }
  const isNew = successor.agent.state === 'answers' && successor.agent.appliedSha256 === null
  const prepare: Step[] = isNew ? [{ kind: 'apply', amphoraId: successor.id, desired: standingBy }] : []
  if (rendering.tree.topology !== 'SINGLE') return [prepare, ...dismiss(rendering, leaving, otherOf(cast, leaving))]
  const take = applyUnlessInEffect(rendering, successor, group)
  const [handover = [], ...rest] = dismiss(rendering, leaving, successor)
  const remove = stateOf(rendering, leaving) === 'gone' ? removal([leaving]) : []
  return [prepare, handover, take, ...rest, ...remove]
}

const otherOf = ({ serving }: Cast, { id, role }: AmphoraSight): AmphoraSight | null =>
  serving.find(amphora => amphora.id !== id && amphora.role !== role) ?? null

/**
 * How an amphora leaves. One that can be told keeps its connections while another one takes the VIP, and has a while to end them. One that
 * cannot loses its interface.
 * @param taker who has the VIP afterwards
 */
function dismiss(rendering: Rendering, leaving: AmphoraSight, taker: AmphoraSight | null): Step[][] {
  const { tree, seen } = rendering
  const isSingle = tree.topology === 'SINGLE'
  const announce: Step[] = isSingle && taker !== null ? [{ kind: 'announce-vip', amphoraId: taker.id }] : []
  const standingBy = desiredOf(rendering, leaving, isSingle || taker === null ? [leaving] : [leaving, taker], true)
  const amphoraId = leaving.id
  if (standingBy === null || stateOf(rendering, leaving) === 'gone') {
    const port = basePortOf(tree, seen, leaving)
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
function stateOf({ tree, seen }: Rendering, amphora: AmphoraSight): 'serves' | 'drains' | 'gone' {
  const { agent, plugged } = amphora
  if (isDraining(amphora)) return 'drains'
  const port = basePortOf(tree, seen, amphora)
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
function planFarewell(rendering: Rendering, cast: Cast): Farewell {
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

function removal(amphorae: readonly AmphoraSight[]): Step[][] {
  const kinds = ['delete-machine', 'delete-ports', 'delete-amphora-row'] as const
  return kinds.map(kind => amphorae.map(({ id: amphoraId }) => ({ kind, amphoraId })))
}
