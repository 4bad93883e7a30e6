import type { ListenerNode, LoadBalancerTree, MemberNode, PoolNode } from '../../../load-balancer/tree/tree.js'
import type { Desired, DesiredRow, Holder } from '../../../ovn/northbound/desired.js'
import { balancerRouterUuid, gatewayRouterUuid, rowUuid, switchUuid } from '../../../ovn/northbound/row-uuid.js'
import { accessRows } from './access-rows.js'
import type { OvnFacts, Vip } from './facts.js'
import { endpoint, macOf, versionOf, WORDS } from './names.js'

/** Owner of the rows of a load balancer. */
export const ownerOf = (loadBalancerId: string): string => `load-balancer/${loadBalancerId}`

/** The load balancer that owns rows; null if something else does. */
export const loadBalancerOf = (owner: string): string | null => /^load-balancer\/(.+)$/.exec(owner)?.[1] ?? null

/** OVN's default, in seconds, as upstream's driver has it. */
const DEFAULT_AFFINITY_SECONDS = 360

/**
 * The rows that should stand for a load balancer: a `Load_Balancer` for each family of a listener; its health checks;
 * what keeps clients out; and the leg that answers for the VIPs. None for one that is under deletion.
 */
export function loadBalancerRows(tree: LoadBalancerTree, facts: OvnFacts): Desired {
  const { id, generation, change } = tree
  const listeners = change === 'delete' ? [] : tree.listeners.filter(listener => listener.change !== 'delete')
  const rows = listeners.flatMap(listener => [...listenerRows(tree, listener, facts), ...accessRows(listener, facts)])
  return { owner: ownerOf(id), generation, rows: [...(change === 'delete' ? [] : vipLegs(tree, facts)), ...rows] }
}

/** A row for each family: OVN 23.03 hashes by the source of IPv4 only. */
function listenerRows(tree: LoadBalancerTree, listener: ListenerNode, facts: OvnFacts): DesiredRow[] {
  return ([4, 6] as const).flatMap(version => {
    const addresses = frontendsOf(facts).filter(({ address }) => versionOf(address) === version)
    return addresses.length === 0 ? [] : familyRows(tree, { listener, version, addresses }, facts)
  })
}

type Family = { listener: ListenerNode; version: 4 | 6; addresses: readonly { address: string }[] }

function familyRows(tree: LoadBalancerTree, { listener, version, addresses }: Family, facts: OvnFacts): DesiredRow[] {
  const { instance, clientNetworks, gatewayRouters } = facts
  const pool = poolOf(tree, listener)
  const isEnabled = tree.adminStateUp && listener.adminStateUp
  const members = pool === null ? [] : servingMembers(pool).filter(({ address }) => versionOf(address) === version)
  const backends = members.map(member => endpoint(member.address, member.protocolPort)).join(',')
  const vips = Object.fromEntries(
    (isEnabled ? addresses : [])
      .map(({ address }): [string, string] => [endpoint(address, listener.protocolPort), backends])
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  )
  const uuid = rowUuid(instance, ...WORDS.listener(listener.id, version))
  const checks = pool === null ? [] : healthChecks(listener, pool, Object.keys(vips), instance)
  const mappings = checks.length === 0 ? [] : members.flatMap(member => mappingOf(member, facts))
  return [
    {
      table: 'Load_Balancer',
      uuid,
      row: {
        name: version === 4 ? listener.id : `${listener.id}-6`,
        protocol: protocolOf(listener),
        vips,
        ...choiceOf(pool, version),
        ip_port_mappings: Object.fromEntries(mappings.sort(([a], [b]) => (a < b ? -1 : 1))),
        external_ids: { 'krater:load-balancer': tree.id, 'krater:listener': listener.id },
      },
      heldBy: [
        ...clientNetworks.map(
          (networkId): Holder => ({
            table: 'Logical_Switch',
            uuid: switchUuid(instance, networkId),
            column: 'load_balancer',
          }),
        ),
        ...gatewayRouters.map(
          (routerId): Holder => ({
            table: 'Logical_Router',
            uuid: gatewayRouterUuid(instance, routerId),
            column: 'load_balancer',
          }),
        ),
      ],
    },
    ...checks.map(
      ({ uuid: checkUuid, row }): DesiredRow => ({
        ...{ table: 'Load_Balancer_Health_Check', uuid: checkUuid, row },
        heldBy: [{ table: 'Load_Balancer', uuid, column: 'health_check' }],
      }),
    ),
  ]
}

const frontendsOf = ({ vips, floatingIps }: OvnFacts): { address: string }[] => [...vips, ...floatingIps]

export const poolOf = (tree: LoadBalancerTree, listener: ListenerNode): PoolNode | null =>
  tree.pools.find(({ id, change }) => id === listener.defaultPoolId && change !== 'delete') ?? null

/** Members that get new connections: enabled, and of a weight other than 0. */
export const servingMembers = (pool: PoolNode): MemberNode[] =>
  pool.adminStateUp
    ? pool.members.filter(({ change, adminStateUp, weight }) => change !== 'delete' && adminStateUp && weight > 0)
    : []

const protocolOf = ({ protocol }: ListenerNode): string => protocol.toLowerCase()

/**
 * How OVN chooses a client's member. A hash of the source needs no memory, but it has none for IPv6. OVN can remember
 * what it chose, for as long as a pool says, but then it drops the first packet of each client.
 */
function choiceOf(
  pool: PoolNode | null,
  version: 4 | 6,
): { selection_fields: string[]; options: Record<string, string> } {
  const persistence = pool?.sessionPersistence ?? null
  const timeout = persistence?.persistenceTimeout ?? null
  const isPersistent = persistence !== null && timeout !== 0
  const isBySource = isPersistent || pool?.lbAlgorithm === 'SOURCE_IP'
  const isRemembered = isPersistent ? timeout !== null || version === 6 : isBySource && version === 6
  return {
    selection_fields: isBySource && version === 4 ? ['ip_dst', 'ip_src'] : ['ip_dst', 'ip_src', 'tp_dst', 'tp_src'],
    options: {
      ...(isRemembered ? { affinity_timeout: String(timeout || DEFAULT_AFFINITY_SECONDS) } : {}),
      // The balancer router's legs answer for the VIPs.
      neighbor_responder: 'none',
      // Clients learn at once that no member is left.
      reject: 'true',
    },
  }
}

type HealthCheck = {
  uuid: string
  row: { vip: string; options: Record<string, string>; external_ids: Record<string, string> }
}

function healthChecks(
  listener: ListenerNode,
  pool: PoolNode,
  vips: readonly string[],
  instance: string,
): HealthCheck[] {
  const monitor = pool.healthMonitor
  if (monitor === null || monitor.change === 'delete' || !monitor.adminStateUp) return []
  return vips.map(vip => ({
    uuid: rowUuid(instance, ...WORDS.healthCheck(listener.id, vip)),
    row: {
      vip,
      options: {
        failure_count: String(monitor.maxRetriesDown),
        interval: String(monitor.delay),
        success_count: String(monitor.maxRetries),
        timeout: String(monitor.timeout),
      },
      external_ids: { 'krater:health-monitor': monitor.id },
    },
  }))
}

function mappingOf(member: MemberNode, { probes }: OvnFacts): [string, string][] {
  const probe = probes.get(member.id)
  return probe === undefined ? [] : [[bracketed(member.address), `${probe.portId}:${bracketed(probe.source)}`]]
}

/**
 * The logical port at which OVN probes a member, as its rows say.
 * @param rowOf a row of `Load_Balancer` that stands
 * @returns null if it probes none
 */
export function probedPortOf(
  { listeners }: LoadBalancerTree,
  pool: PoolNode,
  { address }: MemberNode,
  { instance, rowOf }: { instance: string; rowOf: (uuid: string) => { ip_port_mappings: Mappings } | null },
): string | null {
  for (const { id, defaultPoolId } of listeners) {
    if (defaultPoolId !== pool.id) continue
    const row = rowOf(rowUuid(instance, ...WORDS.listener(id, versionOf(address))))
    const [portId] = row?.ip_port_mappings[bracketed(address)]?.split(':') ?? []
    if (portId !== undefined) return portId
  }
  return null
}

type Mappings = Readonly<Record<string, string>>

const bracketed = (address: string): string => (versionOf(address) === 6 ? `[${address}]` : address)

/** On each network with VIPs, a leg of its balancer router that has them: it answers for them, and leads to members. */
function vipLegs(tree: LoadBalancerTree, { instance, vips }: OvnFacts): DesiredRow[] {
  const networks = [...new Set(vips.map(({ networkId }) => networkId))]
  return networks.flatMap(networkId =>
    vipLeg(
      tree,
      networkId,
      vips.filter(vip => vip.networkId === networkId),
      instance,
    ),
  )
}

function vipLeg(tree: LoadBalancerTree, networkId: string, own: readonly Vip[], instance: string): DesiredRow[] {
  const words = WORDS.vipLeg(tree.id, networkId)
  const uuid = rowUuid(instance, ...words, 'router')
  const name = `krater-vip-${uuid}`
  return [
    {
      table: 'Logical_Router_Port',
      uuid,
      row: {
        name,
        mac: macOf(instance, ...words),
        networks: own.map(({ address }) => `${address}/${versionOf(address) === 4 ? 32 : 128}`).sort(),
      },
      heldBy: [
        {
          table: 'Logical_Router',
          uuid: balancerRouterUuid(instance, networkId),
          column: 'ports',
        },
      ],
    },
    {
      table: 'Logical_Switch_Port',
      uuid: rowUuid(instance, ...words, 'switch'),
      row: { name: `${name}-switch`, type: 'router', addresses: ['router'], options: { 'router-port': name } },
      heldBy: [{ table: 'Logical_Switch', uuid: switchUuid(instance, networkId), column: 'ports' }],
    },
  ]
}
