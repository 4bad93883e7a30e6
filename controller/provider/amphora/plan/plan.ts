import { isDeepStrictEqual } from 'node:util'
import { referencesIn } from '../../../load-balancer/tree/certificate-references.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../provider.js'
import { hasDatagrams } from '../rendering/datagrams/datagrams.js'
import type { HaproxySettings } from '../rendering/facts.js'
import { assignRoles, isLost, type Replacement, type RoleAssignment } from './assign-roles.js'
import { covers, type DesiredPort, portOf } from './desired-ports.js'
import { createRendering, desiredState, isInEffect, portsFor, type Rendering } from './desired-state.js'
import type { Observed, ObservedAgent, ObservedAmphora } from './observation.js'
import { demote, demotionState, peerOf, planDemotion, removal } from './plan-demotion.js'
import { planLeftovers } from './plan-leftovers.js'
import {
  incompatibleFault,
  incompleteSuccessor,
  isHeard,
  olderAgentFault,
  restartLimitFault,
  type UnreachableFacts,
  unreachableFault,
  verdictOn,
} from './plan-unreachable.js'
import { canUpgrade, planUpgrades, type UpgradeFacts } from './plan-upgrades.js'
import type { Plan, Step } from './step.js'
import type { Role } from './topology.js'

export type PlanFacts = UnreachableFacts &
  UpgradeFacts & {
    fence: number
    /** Amphorae of the project that may be restarted or replaced now; see restart-limiter.ts. */
    restartsLeft: number
    haproxy: HaproxySettings
  }

/**
 * The next steps from the observed state towards the tree; no stages if they agree. Pure: equal arguments give
 * equal plans.
 * @throws ProvisioningFault if no step can bring them closer
 */
export function plan(tree: LoadBalancerTree, observed: Observed, facts: PlanFacts): Plan {
  if (tree.change === 'delete') {
    return { stages: stagesOf([...removal(observed.amphorae), [{ kind: 'release-vip-port' }]]), settles: true }
  }
  const roles = assignRoles(tree.topology, observed.amphorae)
  const foundations: Step[] = [...vipPortSteps(tree, observed), ...roles.missing.map(allocate)]
  if (foundations.length > 0) return { stages: [foundations], settles: false }

  const { serving, replacement } = roles
  const rendering = createRendering(tree, observed, facts)
  const works = inspect(rendering, replacement === null ? serving : [...serving, replacement.successor], facts)
  const ready = works.filter(work => work.state === 'ready').map(work => work.amphora)
  const builds = works.filter(work => work.state === 'build')
  const troubles = works.filter(work => work.state === 'trouble')
  const [trouble] = troubles
  const { applies, withheld } = planApplies(rendering, roles, ready)
  const demotion = planDemotion(rendering, roles)
  // In a pair, the leaving amphora stops VRRP before its peer learns of it. A single amphora leaves after its successor
  // is configured.
  const [before, after] = tree.topology === 'SINGLE' ? [[], demotion.stages] : [demotion.stages, []]

  if (builds.length > 0) {
    // Serving amphorae do not wait for one that is being built.
    const first = [...applies.slice(-1), ...builds.flatMap(build => build.make)]
    const rest = [first, builds.flatMap(build => build.attach), builds.flatMap(build => build.awaitAgent)]
    return { stages: stagesOf([...before, ...applies.slice(0, -1).map(step => [step]), ...rest]), settles: false }
  }
  if (replacement !== null && ready.includes(replacement.successor)) {
    if (trouble === undefined || isLost(replacement.leaving)) {
      return { stages: stagesOf(takeOver(rendering, roles, replacement)), settles: false }
    }
  }
  // Sequentially: a configuration that the first amphora refuses never reaches the next.
  const leftovers = planLeftovers(rendering, ready, applies)
  const stages = stagesOf([...before, ...applies.map(step => [step]), ...leftovers.stages])
  if (trouble === undefined) {
    const done = serving.every(amphora => !amphora.replacing)
    const removals = stagesOf([...after, ...removal(demotion.gone), ...demotion.wait(done), leftovers.wait])
    const settles = done && demotion.demoted && leftovers.settles
    // An amphora that is leaving, or has members that are, is left alone until then.
    const upgrades = settles && removals.length === 0 ? planUpgrades(ready, facts) : []
    if (stages.length === 0 && upgrades.length > 0) return { stages: upgrades, settles: false }
    return { stages: [...stages, ...removals], settles: settles && upgrades.length === 0 }
  }
  if (stages.length > 0) return { stages, settles: false }
  const isApplied = tree.generation <= tree.appliedGeneration && serving.every(({ replacing }) => !replacing)
  if (isApplied && !withheld && troubles.every(({ serves }) => serves)) {
    return { stages: stagesOf([leftovers.wait]), settles: true }
  }
  throw trouble.fault
}

const allocate = (role: Role): Step => ({ kind: 'allocate-amphora', role })

const stagesOf = (stages: readonly (readonly Step[])[]) => stages.filter(stage => stage.length > 0)

function vipPortSteps(tree: LoadBalancerTree, { vipPort }: Observed): Step[] {
  if (vipPort !== null) {
    const isFiltered = isDeepStrictEqual([...vipPort.securityGroups].sort(), [...tree.vip.securityGroups].sort())
    return isFiltered ? [] : [{ kind: 'filter-vip-port', portId: vipPort.id }]
  }
  if (tree.vip.ownsPort) return [{ kind: 'ensure-vip-port' }]
  throw new ProvisioningFault(
    'vip-port-missing',
    `The port ${tree.vip.portId ?? ''} supplied for the VIP no longer exists.`,
  )
}

type Work =
  | { state: 'ready'; amphora: ObservedAmphora }
  | { state: 'build'; make: Step[]; attach: Step[]; awaitAgent: Step[] }
  /** `serves`: it serves and is merely unreachable. */
  | { state: 'trouble'; serves: boolean; fault: ProvisioningFault }
  | { state: 'lost' }

function inspect(rendering: Rendering, serving: readonly ObservedAmphora[], facts: PlanFacts): Work[] {
  const { tree, observed } = rendering
  const lacks = lackOf(tree)
  let restarts = 0
  return serving.map((amphora): Work => {
    const { id: amphoraId, machine, agent, status, silentSeconds } = amphora
    const desired = portsFor(rendering, amphora)
    const awaitAgent: Step[] = [{ kind: 'await-agent', amphoraId }]
    const rebuild = (kind: 'create-machine' | 'restart-machine'): Work => ({
      state: 'build',
      make: [{ kind, amphoraId }],
      attach: desired.map(port => ({ kind: 'attach-port', amphoraId, port })),
      awaitAgent,
    })
    if (isLost(amphora)) return { state: 'lost' }
    if (machine !== 'running') return rebuild('create-machine')
    if (agent.state === 'unreachable' && (status === 'ALLOCATED' || silentSeconds > facts.staleAfterSeconds)) {
      const verdict = verdictOn(amphora, tree, observed.amphorae, facts)
      if (verdict === 'wait')
        return { state: 'trouble', serves: amphora.serves === true, fault: unreachableFault(amphora, facts) }
      restarts += 1
      if (restarts > facts.restartsLeft) return { state: 'trouble', serves: false, fault: restartLimitFault() }
      return verdict === 'restart' ? rebuild('restart-machine') : replace(amphoraId)
    }
    if (isHeard(amphora, facts) && amphora.mismatchedSeconds > facts.replaceAfterSeconds && !amphora.replacing) {
      restarts += 1
      if (restarts <= facts.restartsLeft) return replace(amphoraId)
    }
    if (agent.state === 'incompatible' && !amphora.replacing) {
      // A new machine like it would have the same agent, and a newer agent belongs to a newer controller.
      const mayReplace = agent.is === 'too-old' && status === 'ALLOCATED'
      restarts += mayReplace ? 1 : 0
      if (mayReplace && restarts <= facts.restartsLeft) return replace(amphoraId)
      return { state: 'trouble', serves: amphora.serves === true, fault: incompatibleFault(agent.text) }
    }
    const lack = agent.state === 'answers' && !amphora.replacing ? lacks(agent) : null
    if (lack !== null) {
      if (canUpgrade(amphora, facts)) return build({ kind: 'upgrade-agent', amphoraId })
      restarts += 1
      if (restarts > facts.restartsLeft) return { state: 'trouble', serves: false, fault: olderAgentFault(lack) }
      return replace(amphoraId)
    }
    const missing = desired.filter(one => !isAttached(amphora, one))
    const attach = missing.map((port): Step => ({ kind: 'attach-port', amphoraId, port }))
    if (status !== 'ALLOCATED') return { state: 'build', make: [], attach, awaitAgent }
    if (missing.length > 0) return { state: 'build', make: [], attach, awaitAgent: [] }
    return { state: 'ready', amphora }
  })
}

/** What the load balancer needs of agents that an older one cannot do, as a clause; null if there is nothing. */
function lackOf(tree: LoadBalancerTree): (agent: Answering) => string | null {
  const needsMaterial = referencesIn(tree).length > 0
  const needsDatagrams = hasDatagrams(tree)
  return agent => {
    if (needsDatagrams && agent.balancesDatagrams !== true) return 'balance UDP and SCTP'
    return needsMaterial && agent.missing === undefined ? 'read certificates from the key manager' : null
  }
}

type Answering = Extract<ObservedAgent, { state: 'answers' }>

const replace = (amphoraId: string): Work => build({ kind: 'replace-amphora', amphoraId })

const build = (step: Step): Work => ({ state: 'build', make: [step], attach: [], awaitAgent: [] })

function isAttached(amphora: ObservedAmphora, desired: DesiredPort): boolean {
  const port = portOf(amphora, desired)
  return port !== undefined && covers(port, desired) && amphora.plugged.includes(port.id)
}

/**
 * In topology order, except that a successor comes last, so that its peer already knows it. A successor waits while its
 * peer may serve and cannot be configured yet: two amphorae that do not know each other would both take the VIP.
 * `withheld`: a successor needs a configuration and waits.
 */
function planApplies(
  rendering: Rendering,
  roles: RoleAssignment,
  ready: readonly ObservedAmphora[],
): { applies: Step[]; withheld: boolean } {
  const isSuccessor = ({ role }: ObservedAmphora) => roles.superfluous.some(amphora => amphora.role === role)
  const mustWait = roles.serving.some(amphora => !ready.includes(amphora) && mayHoldVip(amphora))
  const applyTo = (amphora: ObservedAmphora) => applyUnlessInEffect(rendering, amphora, roles.serving)
  const configurable = roles.serving.filter(amphora => ready.includes(amphora))
  const successors = configurable.filter(isSuccessor).flatMap(applyTo)
  const others = configurable.filter(amphora => !isSuccessor(amphora)).flatMap(applyTo)
  return mustWait
    ? { applies: others, withheld: successors.length > 0 }
    : { applies: [...others, ...successors], withheld: false }
}

/** It may hold the VIP, now or once its peer loses it. */
const mayHoldVip = ({ agent, serves }: ObservedAmphora): boolean =>
  agent.state === 'answers' ? agent.appliedSha256 !== null : serves === true

function applyUnlessInEffect(
  rendering: Rendering,
  amphora: ObservedAmphora,
  group: readonly ObservedAmphora[],
): Step[] {
  const desired = desiredState(rendering, amphora, group, false)
  return desired === null || isInEffect(amphora, desired) ? [] : [{ kind: 'apply', amphoraId: amphora.id, desired }]
}

/**
 * Steps for a ready successor. It serves before it holds the VIP, so that the VIP always moves to an amphora that
 * serves. A single amphora's successor takes the VIP before the old one gives it up: neighbours follow the latest
 * announcement. In a pair, the remaining amphora takes it. The successor joins once the old one has left and the
 * remaining one knows it: two amphorae that do not hear each other would both take the VIP.
 */
function takeOver(rendering: Rendering, roles: RoleAssignment, { leaving, successor }: Replacement): Step[][] {
  const group = [...roles.serving.filter(amphora => amphora !== leaving), successor]
  const standby = desiredState(rendering, successor, group, true)
  if (standby === null) {
    throw new ProvisioningFault('pair-incomplete', 'The VRRP address of the other amphora is unknown.')
  }
  const isNew = successor.agent.state === 'answers' && successor.agent.appliedSha256 === null
  const mustBeWhole = !isLost(leaving)
  const [missing] = successor.agent.state === 'answers' ? (successor.agent.missing ?? []) : []
  if (mustBeWhole && !isNew && missing !== undefined) throw incompleteSuccessor(missing)
  const prepare: Step[] = isNew ? [{ kind: 'apply', amphoraId: successor.id, desired: standby, mustBeWhole }] : []
  if (rendering.tree.topology !== 'SINGLE') return [prepare, ...demote(rendering, leaving, peerOf(roles, leaving))]
  const take = applyUnlessInEffect(rendering, successor, group)
  const [handover = [], ...rest] = demote(rendering, leaving, successor)
  const remove = demotionState(rendering, leaving) === 'gone' ? removal([leaving]) : []
  return [prepare, handover, take, ...rest, ...remove]
}
