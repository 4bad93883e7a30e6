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

/** Input common to the desired states of all amphorae of a load balancer. */
export type Rendering = {
  tree: LoadBalancerTree
  observed: Observed
  fence: number
  haproxy: HaproxySettings
  /** Desired ports by amphora id. */
  ports: ReadonlyMap<string, readonly DesiredPort[]>
}

/** Computes the desired ports once for all amphorae. */
export const createRendering = (
  tree: LoadBalancerTree,
  observed: Observed,
  { fence, haproxy }: Pick<Rendering, 'fence' | 'haproxy'>,
): Rendering => ({
  ...{ tree, observed, fence, haproxy },
  ports: new Map(observed.amphorae.map(({ id }) => [id, desiredPorts(tree, observed.subnets, id)])),
})

export const portsFor = ({ ports }: Rendering, { id }: ObservedAmphora): readonly DesiredPort[] => ports.get(id) ?? []

/**
 * The desired state of an amphora within its group.
 * @param group the amphora and, in a pair, the other one
 * @param isStandby serve, but neither hold nor claim the VIP
 * @returns null if the agent cannot be reached, or while an address of the group is unknown: in a pair, each amphora's
 *   configuration names the other's address
 */
export function desiredState(
  rendering: Rendering,
  amphora: ObservedAmphora,
  group: readonly ObservedAmphora[],
  isStandby: boolean,
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
    answersMetrics: agent.answersMetrics ?? false,
    readsMaterial: agent.missing !== undefined,
    balancesDatagrams: agent.balancesDatagrams ?? false,
    limits: machineLimits(amphora),
    ...haproxy,
    interfaces: pluggedInterfaces(rendering, amphora),
    pair: priority === null ? null : { priority, vrrpAddress: own, peers },
    isStandby,
  })
}

/** Both the row and the agent must agree: the row may predate a restart of the amphora. */
export function isInEffect(amphora: ObservedAmphora, desired: Desired): boolean {
  const { agent, appliedGeneration, appliedSha256, needsApply } = amphora
  const agrees = (applied: { appliedGeneration: number; appliedSha256: string | null }) =>
    applied.appliedGeneration === desired.generation && applied.appliedSha256 === desired.sha256
  return !needsApply && agrees({ appliedGeneration, appliedSha256 }) && agent.state === 'answers' && agrees(agent)
}

/**
 * One amphora's instructions for moving the VIPs between it and another one.
 * @param seconds time limit of the handover
 * @returns null while an address of either is unknown
 */
export function handoverFor(
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

/** The port that carries the VIPs besides its own addresses. */
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
    const { macAddress } = amphora.interfaces.find(({ id }) => id === port.id) ?? {}
    return { purpose: desired.purpose, port, subnets, mtu: mtus.get(port.networkId) ?? DEFAULT_MTU, macAddress }
  })
}

/** For agents that do not report limits: typical for containers. */
const DEFAULT_LIMITS: MachineLimits = { openFiles: 20_000, memoryBytes: 2 * 1024 ** 3 }

/** Resource limits of an amphora's machine. */
export const machineLimits = ({ agent }: ObservedAmphora): MachineLimits =>
  (agent.state === 'answers' ? agent.limits : undefined) ?? DEFAULT_LIMITS

const DEFAULT_MTU = 1500
