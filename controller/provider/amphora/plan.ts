import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import type { LoadBalancerTree } from '../../load-balancer/tree.js'
import { ProvisioningFault } from '../provider.js'
import type { AmphoraSight, Observed } from './observed.js'
import { renderDesired } from './rendering/desired.js'
import type { Card } from './rendering/facts.js'
import { type Role, rolesOf, vrrpPriority } from './topology.js'
import { covers, type WantedPort, wantedPorts } from './wanted-ports.js'

/** One act that brings a load balancer nearer to its wanted state. Every act may be repeated. */
export type Step =
  | { kind: 'ensure-vip-port' }
  | { kind: 'release-vip-port' }
  /** A warm amphora when there is one, else the row of a new one. */
  | { kind: 'allocate-amphora'; role: Role }
  | { kind: 'create-machine'; amphoraId: string }
  /** For a machine that runs but whose agent stays silent. */
  | { kind: 'restart-machine'; amphoraId: string }
  | { kind: 'attach-port'; amphoraId: string; port: WantedPort }
  | { kind: 'await-agent'; amphoraId: string }
  | { kind: 'apply'; amphoraId: string; desired: Desired }
  | { kind: 'detach-port'; amphoraId: string; portId: string; plugged: boolean }
  | { kind: 'delete-machine'; amphoraId: string }
  | { kind: 'delete-ports'; amphoraId: string }
  | { kind: 'delete-amphora-row'; amphoraId: string }

/** The steps of a stage are independent of each other; a stage begins when the one before it has succeeded. */
export type Plan = {
  stages: readonly (readonly Step[])[]
  /** When all of it succeeds, the wanted state is reached; otherwise the world has to be looked at again. */
  settles: boolean
}

export type PlanFacts = {
  fence: number
  /** Silence after which an amphora that does not answer either is started anew. */
  staleAfterSeconds: number
  /** How many machines may be restarted now; see brake.ts. */
  restartsLeft: number
  /** Most connections that HAProxy may be told to take. */
  maxConnections: number
}

/**
 * The next steps from the world as it was seen towards the tree; no stage when they agree. Pure: the same arguments give the same plan.
 * @throws ProvisioningFault when nothing can be done about what keeps them apart
 */
export function plan(tree: LoadBalancerTree, seen: Observed, facts: PlanFacts): Plan {
  if (tree.change === 'delete') {
    return { stages: stagesOf([...removal(seen.amphorae), [{ kind: 'release-vip-port' }]]), settles: true }
  }
  const { serving, superfluous } = assignRoles(tree, seen.amphorae)
  const missing = rolesOf(tree.topology).filter(role => !serving.some(amphora => amphora.role === role))
  const foundations: Step[] = [...vipPortSteps(tree, seen), ...missing.map(allocate)]
  if (foundations.length > 0) return { stages: [foundations], settles: false }

  const works = inspect(tree, seen, serving, facts)
  const ready = works.filter(work => work.state === 'ready').map(work => work.amphora)
  const builds = works.filter(work => work.state === 'build')
  const [trouble] = works.filter(work => work.state === 'trouble')
  const applies = planApplies(tree, seen, serving, ready, facts)

  if (builds.length > 0) {
    // The amphorae that serve need not wait for one that is being made.
    const first = [...applies, ...builds.flatMap(build => build.make)]
    const stages = [first, builds.flatMap(build => build.attach), builds.flatMap(build => build.awaitAgent)]
    return { stages: stagesOf(stages), settles: false }
  }
  // One after the other: a configuration that the first refuses never reaches the next.
  const stages = stagesOf([...applies.map(step => [step]), ready.flatMap(amphora => leftovers(tree, seen, amphora))])
  if (trouble === undefined) return { stages: stagesOf([...stages, ...removal(superfluous)]), settles: true }
  if (stages.length === 0) throw trouble.fault
  return { stages, settles: false }
}

const allocate = (role: Role): Step => ({ kind: 'allocate-amphora', role })

const stagesOf = (stages: readonly (readonly Step[])[]) => stages.filter(stage => stage.length > 0)

function assignRoles(tree: LoadBalancerTree, amphorae: readonly AmphoraSight[]) {
  const usable = amphorae.filter(amphora => amphora.status !== 'PENDING_DELETE')
  const serving = rolesOf(tree.topology).flatMap(role => {
    const ofRole = usable.filter(amphora => amphora.role === role)
    return ofRole.find(amphora => amphora.status === 'ALLOCATED') ?? ofRole[0] ?? []
  })
  return { serving, superfluous: amphorae.filter(amphora => !serving.includes(amphora)) }
}

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
  | { state: 'trouble'; fault: ProvisioningFault }

function inspect(
  tree: LoadBalancerTree,
  seen: Observed,
  serving: readonly AmphoraSight[],
  { staleAfterSeconds, restartsLeft }: PlanFacts,
): Work[] {
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
      make: [{ kind, amphoraId }, ...outgrown.map(step => ({ ...step, plugged: false }))],
      attach: wanted.map(port => ({ kind: 'attach-port', amphoraId, port })),
      awaitAgent,
    })
    if (machine !== 'running') return rebuild('create-machine')
    if (agent.state === 'unreachable' && silentSeconds > staleAfterSeconds) {
      restarts += 1
      return restarts > restartsLeft ? { state: 'trouble', fault: braked() } : rebuild('restart-machine')
    }
    if (agent.state === 'unreachable' && status === 'ALLOCATED') return { state: 'trouble', fault: unreachable() }
    const missing = wanted.filter(want => !isAttached(amphora, want))
    const attach = missing.map((port): Step => ({ kind: 'attach-port', amphoraId, port }))
    if (status !== 'ALLOCATED') return { state: 'build', make: outgrown, attach, awaitAgent }
    if (missing.length > 0) return { state: 'build', make: outgrown, attach, awaitAgent: [] }
    return { state: 'ready', amphora }
  })
}

const unreachable = () =>
  new ProvisioningFault('amphora-unreachable', 'An amphora does not answer; it is restarted when it stays silent.')

const braked = () =>
  new ProvisioningFault(
    'failover-brake',
    'An amphora does not answer, and too many were restarted in the last minutes to restart one more now.',
  )

const portOf = (amphora: AmphoraSight, { request }: WantedPort) =>
  amphora.ports.find(port => port.name === request.name)

function isAttached(amphora: AmphoraSight, want: WantedPort): boolean {
  const port = portOf(amphora, want)
  return port !== undefined && covers(port, want) && amphora.plugged.includes(port.id)
}

const detach = (amphora: AmphoraSight, portId: string) => ({
  kind: 'detach-port' as const,
  amphoraId: amphora.id,
  portId,
  plugged: amphora.plugged.includes(portId),
})

/** Ports and cards that no member needs any more, once the configuration does not name them. */
function leftovers(tree: LoadBalancerTree, seen: Observed, amphora: AmphoraSight): Step[] {
  const needed = wantedPorts(tree, seen.subnets, amphora.id).map(want => portOf(amphora, want)?.id)
  const had = new Set([...amphora.ports.map(port => port.id), ...amphora.plugged])
  return [...had].filter(portId => !needed.includes(portId)).map(portId => detach(amphora, portId))
}

function planApplies(
  tree: LoadBalancerTree,
  seen: Observed,
  serving: readonly AmphoraSight[],
  ready: readonly AmphoraSight[],
  facts: PlanFacts,
): Step[] {
  const addresses = new Map(serving.map(amphora => [amphora.id, vrrpAddress(tree, seen, amphora)]))
  // Each of a pair names all the others' addresses, so none is configured before all are known.
  if ([...addresses.values()].some(address => address === null)) return []
  return ready.flatMap(amphora => {
    if (amphora.agent.state !== 'answers' || amphora.role === null) return []
    const priority = vrrpPriority(amphora.role)
    const peers = [...addresses].flatMap(([amphoraId, address]) =>
      amphoraId === amphora.id || address === null ? [] : [{ amphoraId, address }],
    )
    const desired = renderDesired(tree, {
      amphoraId: amphora.id,
      fence: facts.fence,
      haproxyVersion: amphora.agent.haproxyVersion,
      maxConnections: facts.maxConnections,
      cards: cardsOf(tree, seen, amphora),
      pair: priority === null ? null : { priority, vrrpAddress: addresses.get(amphora.id) ?? '', peers },
    })
    return isInEffect(amphora, desired) ? [] : [{ kind: 'apply' as const, amphoraId: amphora.id, desired }]
  })
}

function vrrpAddress(tree: LoadBalancerTree, seen: Observed, amphora: AmphoraSight): string | null {
  const base = wantedPorts(tree, seen.subnets, amphora.id).find(want => want.purpose === 'vip')
  const port = base && portOf(amphora, base)
  return port?.fixedIps.find(({ subnetId }) => subnetId === tree.vip.subnetId)?.address ?? null
}

function cardsOf(tree: LoadBalancerTree, seen: Observed, amphora: AmphoraSight): Card[] {
  return wantedPorts(tree, seen.subnets, amphora.id).flatMap(want => {
    const port = portOf(amphora, want)
    if (port === undefined) return []
    const subnets = seen.subnets.filter(subnet => port.fixedIps.some(({ subnetId }) => subnetId === subnet.id))
    return { purpose: want.purpose, port, subnets, mtu: seen.mtus.get(port.networkId) ?? DEFAULT_MTU }
  })
}

const DEFAULT_MTU = 1500

/** The record and the agent itself must agree: the record may be older than a restart of the amphora. */
function isInEffect(amphora: AmphoraSight, desired: Desired): boolean {
  const { agent, appliedGeneration, appliedSha256, needsApply } = amphora
  const agrees = (applied: { appliedGeneration: number; appliedSha256: string | null }) =>
    applied.appliedGeneration === desired.generation && applied.appliedSha256 === desired.sha256
  return !needsApply && agrees({ appliedGeneration, appliedSha256 }) && agent.state === 'answers' && agrees(agent)
}

function removal(amphorae: readonly AmphoraSight[]): Step[][] {
  const kinds = ['delete-machine', 'delete-ports', 'delete-amphora-row'] as const
  return kinds.map(kind => amphorae.map(({ id: amphoraId }) => ({ kind, amphoraId })))
}
