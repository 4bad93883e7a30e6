import ipaddr from 'ipaddr.js'
import type {
  DatagramListener,
  DatagramMember,
  DatagramPool,
  Datagrams,
} from '../../../../../amphora-agent/protocol/datagrams.js'
import type { ObjectTable } from '../../../../../amphora-agent/protocol/desired.js'
import { isDatagram } from '../../../../load-balancer/objects/protocols.js'
import { type MachineLimits, scaled } from '../../../../load-balancer/tree/capacity.js'
import { type FlowShares, shareFlows } from '../../../../load-balancer/tree/flow-capacity.js'
import type {
  ListenerNode,
  LoadBalancerTree,
  MemberNode,
  PoolNode,
  SessionPersistence,
} from '../../../../load-balancer/tree/tree.js'
import { byId, isDesired } from '../desired-objects.js'
import { address, cidr, textOf } from '../quote.js'
import { renderMonitor } from './monitor.js'

/** How long a client without packets keeps its member, unless the pool says otherwise: as in keepalived. */
const DEFAULT_PERSISTENCE_SECONDS = 360
/** In the API, 0 means none. It is HAProxy's longest timeout. */
const LONGEST_IDLE_SECONDS = 2_147_483

/**
 * The UDP and SCTP listeners of a load balancer; null if it is disabled or has no enabled one. Pure, and independent of
 * the order of rows. Omits objects that are disabled or under deletion, except that a disabled member is marked.
 * @throws ProvisioningFault for a value that cannot be written
 */
export function renderDatagrams(
  tree: LoadBalancerTree,
  limits: MachineLimits,
): { datagrams: Datagrams | null; objects: ObjectTable } {
  const listeners = datagramListeners(tree)
  if (listeners.length === 0) return { datagrams: null, objects: { listeners: [], pools: [] } }
  const used = new Set(listeners.map(({ defaultPoolId }) => defaultPoolId))
  const pools = tree.pools.filter(pool => isDesired(pool) && used.has(pool.id)).sort(byId)
  const rendered = new Map(pools.map(pool => [pool.id, renderPool(tree, pool)]))
  const poolOf = ({ defaultPoolId }: ListenerNode) => rendered.get(defaultPoolId ?? '')
  const shares = sharesOf(listeners, limits)
  return {
    datagrams: {
      vips: [tree.vip, ...tree.additionalVips].map(vip => textOf(address(vip.address, 'The VIP address'))).sort(),
      listeners: listeners.map(listener => renderListener(listener, poolOf(listener)?.id ?? null, shares)),
      pools: [...rendered.values()],
    },
    objects: {
      listeners: listeners.map(({ id }) => id),
      pools: listeners.flatMap(listener => {
        const pool = poolOf(listener)
        if (pool === undefined) return []
        return [{ poolId: pool.id, listenerId: listener.id, members: pool.members.map(({ id }) => id) }]
      }),
    },
  }
}

/** Whether the load balancer needs an agent that balances UDP or SCTP. */
export const hasDatagrams = (tree: LoadBalancerTree): boolean => datagramListeners(tree).length > 0

/** Describes what the load balancer's flows need beyond these limits; null if they fit. Pure. */
export const flowShortage = (tree: LoadBalancerTree, limits: MachineLimits): string | null =>
  sharesOf(datagramListeners(tree), limits).excess

/** The enabled UDP and SCTP listeners by id; none if the load balancer is disabled. */
function datagramListeners({ adminStateUp, change, listeners }: LoadBalancerTree): ListenerNode[] {
  if (!adminStateUp || change === 'delete') return []
  return listeners.filter(listener => isDesired(listener) && isDatagram(listener.protocol)).sort(byId)
}

const sharesOf = (listeners: readonly ListenerNode[], limits: MachineLimits): FlowShares =>
  shareFlows(
    limits,
    listeners.map(({ connectionLimit }) => connectionLimit),
  )

function renderListener(listener: ListenerNode, poolId: string | null, shares: FlowShares): DatagramListener {
  const { id, protocol, protocolPort, connectionLimit, allowedCidrs, timeoutClientData } = listener
  const seconds = timeoutClientData === 0 ? LONGEST_IDLE_SECONDS : Math.ceil(timeoutClientData / 1000)
  return {
    id,
    protocol: protocol === 'SCTP' ? 'sctp' : 'udp',
    port: protocolPort,
    // If the machine is too small, all limits shrink equally.
    limit: connectionLimit < 0 ? shares.unlimited : scaled(connectionLimit, shares.factor),
    allowed: allowedCidrs?.map(source => textOf(cidr(source, `Listener ${id}, allowed_cidrs`))).sort() ?? null,
    idleSeconds: Math.min(seconds, LONGEST_IDLE_SECONDS),
    poolId,
  }
}

function renderPool(tree: LoadBalancerTree, pool: PoolNode): DatagramPool {
  const { id, lbAlgorithm, sessionPersistence, healthMonitor, members } = pool
  return {
    id,
    algorithm: lbAlgorithm,
    persistence: sessionPersistence === null ? null : persistenceOf(sessionPersistence),
    monitor: healthMonitor !== null && isDesired(healthMonitor) ? renderMonitor(tree, healthMonitor) : null,
    members: members
      .filter(({ change }) => change !== 'delete')
      .sort(byId)
      .map(renderMember),
  }
}

/** A netmask is for one family; clients of the other are told apart by their whole address. */
function persistenceOf({
  persistenceTimeout,
  persistenceGranularity,
}: SessionPersistence): DatagramPool['persistence'] {
  const seconds = persistenceTimeout ?? DEFAULT_PERSISTENCE_SECONDS
  if (seconds === 0) return null
  const bits = { ipv4: 32, ipv6: 128 }
  if (persistenceGranularity !== null) {
    const mask = ipaddr.parse(persistenceGranularity)
    bits[mask.kind()] = mask.prefixLengthFromSubnetMask() ?? bits[mask.kind()]
  }
  return { seconds, bits }
}

function renderMember(member: MemberNode): DatagramMember {
  const { id, protocolPort, weight, backup, adminStateUp, monitorAddress, monitorPort } = member
  const host = textOf(address(member.address, `Member ${id}, address`))
  return {
    id,
    address: host,
    port: protocolPort,
    weight,
    backup,
    disabled: !adminStateUp,
    monitor: {
      address: monitorAddress === null ? host : textOf(address(monitorAddress, `Member ${id}, monitor_address`)),
      port: monitorPort ?? protocolPort,
    },
  }
}
