import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { Handover } from '../../../../amphora-agent/protocol/handover.js'
import type { MachineLimits } from '../../../load-balancer/tree/capacity.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { renderDesired } from '../rendering/desired.js'
import type { HaproxySettings, PluggedInterface } from '../rendering/facts.js'
import { placeVips } from '../rendering/keepalived/interfaces.js'
import { type DesiredPort, desiredPorts, portOf } from './desired-ports.js'
import type { Observed, ObservedAmphora } from './observation.js'
import { vrrpPriority } from './topology.js'

/** What all desired states of a load balancer have in common. */
export type Rendering = {
  tree: LoadBalancerTree
  observed: Observed
  fence: number
  haproxy: HaproxySettings
  /** The ports that each amphora should have, by its id. */
  ports: ReadonlyMap<string, readonly DesiredPort[]>
}

/** Derives once what the amphorae are compared with. */
export const renderingOf = (
  tree: LoadBalancerTree,
  observed: Observed,
  { fence, haproxy }: Pick<Rendering, 'fence' | 'haproxy'>,
): Rendering => ({
  ...{ tree, observed, fence, haproxy },
  ports: new Map(observed.amphorae.map(({ id }) => [id, desiredPorts(tree, observed.subnets, id)])),
})

export const portsFor = ({ ports }: Rendering, { id }: ObservedAmphora): readonly DesiredPort[] => ports.get(id) ?? []

/**
 * What an amphora should be among those that share the VIP with it.
 * @param group it and the other one of a pair
 * @param standsBy serve, but do not hold the VIP, nor ask for it
 * @returns null for one that cannot be told, and while an address of the group is unknown: each of a pair names the other's
 */
export function desiredOf(
  rendering: Rendering,
  amphora: ObservedAmphora,
  group: readonly ObservedAmphora[],
  standsBy: boolean,
): Desired | null {
  const { tree, fence, haproxy } = rendering
  const { agent, role } = amphora
  if (agent.state !== 'answers' || role === null) return null
  const own = vrrpAddress(rendering, amphora)
  const others = group.filter(({ id }) => id !== amphora.id)
  const peers = others.flatMap(other => {
    const address = vrrpAddress(rendering, other)
    return address === null ? [] : [{ amphoraId: other.id, address }]
  })
  if (own === null || peers.length < others.length) return null
  const priority = vrrpPriority(role)
  return renderDesired(tree, {
    amphoraId: amphora.id,
    fence,
    haproxyVersion: agent.haproxyVersion,
    limits: limitsOf(amphora),
    ...haproxy,
    interfaces: pluggedInterfaces(rendering, amphora),
    pair: priority === null ? null : { priority, vrrpAddress: own, peers },
    standsBy,
  })
}

/** The record and the agent itself must agree: the record may be older than a restart of the amphora. */
export function isInEffect(amphora: ObservedAmphora, desired: Desired): boolean {
  const { agent, appliedGeneration, appliedSha256, needsApply } = amphora
  const agrees = (applied: { appliedGeneration: number; appliedSha256: string | null }) =>
    applied.appliedGeneration === desired.generation && applied.appliedSha256 === desired.sha256
  return !needsApply && agrees({ appliedGeneration, appliedSha256 }) && agent.state === 'answers' && agrees(agent)
}

/**
 * The part of one amphora in moving the VIPs between it and another one.
 * @param seconds how long it may take
 * @returns null while an address of the two is unknown
 */
export function handoverOf(
  rendering: Rendering,
  role: Handover['role'],
  amphora: ObservedAmphora,
  other: ObservedAmphora,
  seconds: number,
): Handover | null {
  const own = vrrpAddress(rendering, amphora)
  const peer = vrrpAddress(rendering, other)
  if (own === null || peer === null) return null
  const { interface: name, vips } = placeVips(rendering.tree, pluggedInterfaces(rendering, amphora))
  return { role, own, peer, interface: name, vips, seconds }
}

function vrrpAddress(rendering: Rendering, amphora: ObservedAmphora): string | null {
  const port = basePortOf(rendering, amphora)
  return port?.fixedIps.find(({ subnetId }) => subnetId === rendering.tree.vip.subnetId)?.address ?? null
}

/** The port that carries VIPs beside its own addresses. */
export function basePortOf(rendering: Rendering, amphora: ObservedAmphora) {
  const base = portsFor(rendering, amphora).find(({ purpose }) => purpose === 'vip')
  return base && portOf(amphora, base)
}

function pluggedInterfaces(rendering: Rendering, amphora: ObservedAmphora): PluggedInterface[] {
  const { subnets: known, mtus } = rendering.observed
  return portsFor(rendering, amphora).flatMap(desired => {
    const port = portOf(amphora, desired)
    if (port === undefined) return []
    const subnets = known.filter(subnet => port.fixedIps.some(({ subnetId }) => subnetId === subnet.id))
    return { purpose: desired.purpose, port, subnets, mtu: mtus.get(port.networkId) ?? DEFAULT_MTU }
  })
}

/** Of the machine of an agent that does not tell: what containers often get. */
const UNTOLD: MachineLimits = { openFiles: 20_000, memoryBytes: 2 * 1024 ** 3 }

/** What the machine of an amphora gives. */
export const limitsOf = ({ agent }: ObservedAmphora): MachineLimits =>
  (agent.state === 'answers' ? agent.limits : undefined) ?? UNTOLD

const DEFAULT_MTU = 1500
