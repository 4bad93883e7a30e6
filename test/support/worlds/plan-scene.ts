import type { Test } from 'tap'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import type { Port, Subnet } from '../../../controller/network/driver.js'
import { desiredPorts } from '../../../controller/provider/amphora/plan/desired-ports.js'
import type { Observed, ObservedAmphora } from '../../../controller/provider/amphora/plan/observation.js'
import { type PlanFacts, plan } from '../../../controller/provider/amphora/plan/plan.js'
import type { Plan, Step } from '../../../controller/provider/amphora/plan/step.js'
import { aListener, aMember, aPool, aTree, uuid } from '../../golden/models.js'

export const AMPHORA = uuid(6, 1)
export const MEMBER_SUBNET = uuid(7, 2)
/** Of the same network. */
export const SECOND_SUBNET = uuid(7, 3)
export const MEMBER_NETWORK = uuid(8, 2)

const subnet = (id: string, networkId: string, cidr: string): Subnet => ({
  id,
  networkId,
  projectId: '',
  ipVersion: 4,
  cidr,
  gatewayIp: null,
  hostRoutes: [],
  overlapsManagement: false,
})

export const SUBNETS = [
  subnet(uuid(7, 1), uuid(8, 1), '203.0.113.0/24'),
  subnet(MEMBER_SUBNET, MEMBER_NETWORK, '192.0.2.0/24'),
  subnet(SECOND_SUBNET, MEMBER_NETWORK, '198.51.100.0/24'),
]

export function createTree(
  change: Partial<LoadBalancerTree> = {},
  memberSubnets: (string | null)[] = [],
): LoadBalancerTree {
  const members = memberSubnets.map((subnetId, index) => aMember(index + 1, { subnetId }))
  return aTree({ listeners: [aListener(1, { defaultPoolId: uuid(3, 1) })], pools: [aPool(1, { members })], ...change })
}

export const facts = (change: Partial<PlanFacts> = {}): PlanFacts => ({
  fence: 4,
  staleAfterSeconds: 15,
  replaceAfterSeconds: 60,
  silentAlone: new Set(),
  agentBundle: null,
  restartsLeft: 3,
  haproxy: { oldWorkers: { most: 50, memoryMib: 512 }, logRequests: false },
  ...change,
})

export const VIP_PORT: Port = {
  id: uuid(9, 1),
  networkId: uuid(8, 1),
  projectId: '',
  name: '',
  macAddress: 'fa:16:3e:00:00:09',
  deviceId: '',
  deviceOwner: 'Octavia',
  fixedIps: [],
  allowedAddresses: [],
  securityGroups: [],
}

/** The ports that a tree needs for an amphora, as if they existed. */
export function portsFor(tree: LoadBalancerTree, amphoraId = AMPHORA): Port[] {
  return desiredPorts(tree, SUBNETS, amphoraId).map(({ request }, index) => ({
    ...request,
    allowedAddresses: [],
    securityGroups: [],
    id: `${amphoraId.slice(-2)}${index}00000-0000-4000-8000-000000000000`,
    projectId: '',
    macAddress: `fa:16:3e:00:00:0${index}`,
    fixedIps: request.fixedIps.map(({ subnetId }) => ({
      subnetId,
      address: SUBNETS.find(({ id }) => id === subnetId)!.cidr.replace('.0/24', `.${20 + Number(amphoraId.slice(-1))}`),
    })),
  }))
}

/** An amphora with everything in place for the tree, but nothing applied yet. */
export function createAmphora(tree: LoadBalancerTree, change: Partial<ObservedAmphora> = {}): ObservedAmphora {
  const ports = portsFor(tree, change.id)
  return {
    id: AMPHORA,
    status: 'ALLOCATED',
    role: 'STANDALONE',
    managementAddress: '10.0.0.5',
    appliedGeneration: 0,
    appliedSha256: null,
    silentSeconds: 1,
    heardSeconds: 1,
    unreachableSeconds: 0,
    mismatchedSeconds: 0,
    needsApply: false,
    replacing: false,
    upgradeTo: null,
    upgradeFailed: null,
    heldVip: false,
    machine: 'running',
    serves: null,
    ports,
    plugged: ports.map(port => port.id),
    interfaces: [],
    patienceSeconds: 0,
    canBeCutOff: true,
    agent: { state: 'answers', haproxyVersion: '2.6.12', appliedGeneration: 0, appliedSha256: null, drain: null },
    ...change,
  }
}

/** The same amphora after the tree's configuration was applied. */
export function createSettled(tree: LoadBalancerTree, change: Partial<ObservedAmphora> = {}): ObservedAmphora {
  const fresh = createAmphora(tree, change)
  const apply = plan(tree, observe(fresh), facts())
    .stages.flat()
    .find(step => step.kind === 'apply')
  const applied = { appliedGeneration: tree.generation, appliedSha256: apply?.desired.sha256 ?? null }
  return {
    ...fresh,
    ...applied,
    agent: { state: 'answers', haproxyVersion: '2.6.12', drain: null, ...applied },
    ...change,
  }
}

/** Both amphorae of a pair with their shared configuration applied. */
export function settlePair(tree: LoadBalancerTree, one: ObservedAmphora, other: ObservedAmphora) {
  const steps = plan(tree, observe(one, other), facts()).stages.flat()
  const settle = (amphora: ObservedAmphora): ObservedAmphora => {
    const apply = steps.find(step => step.kind === 'apply' && step.amphoraId === amphora.id)
    const appliedSha256 = apply?.kind === 'apply' ? apply.desired.sha256 : null
    const applied = { appliedGeneration: tree.generation, appliedSha256 }
    return { ...amphora, ...applied, agent: { state: 'answers', haproxyVersion: '2.6.12', drain: null, ...applied } }
  }
  return [settle(one), settle(other)] as const
}

/** The same amphora while members that left may finish their open requests for `leavingSeconds`. */
export const leaving = (amphora: ObservedAmphora, leavingSeconds: number): ObservedAmphora => ({
  ...amphora,
  agent: amphora.agent.state === 'answers' ? { ...amphora.agent, leavingSeconds } : amphora.agent,
})

export const observe = (...amphorae: ObservedAmphora[]): Observed => ({
  amphorae,
  vipPort: VIP_PORT,
  subnets: SUBNETS,
  mtus: new Map(SUBNETS.map(({ networkId }) => [networkId, 1450])),
})

export const kinds = ({ stages }: Plan) => stages.map(stage => stage.map(step => step.kind))

export function expectSteps(t: Test, next: Plan, stages: Step['kind'][][], settles = true) {
  t.same(kinds(next), stages)
  t.equal(
    next.settles,
    settles,
    settles ? 'the plan settles after these steps' : 'the plan observes again after these steps',
  )
}
