import type { Backend } from '../../../../amphora-agent/protocol/desired.js'
import type {
  Algorithm,
  HealthMonitorNode,
  ListenerNode,
  LoadBalancerTree,
  PoolNode,
} from '../../../load-balancer/tree.js'
import { type HttpCheckModel, httpCheckModel } from './checks.js'
import { type ConfigurationWord, identifier, integer, keywords, milliseconds, seconds } from './quote.js'
import { renderServer, type ServerWords } from './servers.js'
import { isWanted } from './wanted.js'

/** One pool as it serves one listener: a section `backend`. */
export type BackendModel = {
  name: ConfigurationWord
  mode: ConfigurationWord
  http: boolean
  balance: ConfigurationWord
  consistentHash: boolean
  fullconn: ConfigurationWord
  timeoutConnect: ConfigurationWord
  timeoutServer: ConfigurationWord
  timeoutCheck: ConfigurationWord | null
  httpCheck: HttpCheckModel | null
  servers: ServerWords[]
}

const BALANCE: Record<Algorithm, string> = {
  ROUND_ROBIN: 'roundrobin',
  LEAST_CONNECTIONS: 'leastconn',
  SOURCE_IP: 'source',
  SOURCE_IP_PORT: 'source',
}

export type RenderedBackend = {
  model: BackendModel
  /** The same servers as the agent handles them. */
  backend: Backend
  /** The ids of its members, in the order of the servers. */
  members: string[]
}

/**
 * A pool for one listener, with all its members: what is under deletion is left out, what is disabled stays as a disabled server.
 * @param fullconn the listener's limit within that of the amphora
 * @throws ProvisioningFault for a value that cannot be written
 */
export function renderBackend(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  pool: PoolNode,
  fullconn: number,
): RenderedBackend {
  const members = pool.members
    .filter(member => member.change !== 'delete')
    .sort((a, b) => a.serverNumber - b.serverNumber)
  const monitor = pool.healthMonitor !== null && isWanted(pool.healthMonitor) ? pool.healthMonitor : null
  const rendered = members.map(member => renderServer(member, monitor))
  return {
    model: { ...backendModel(tree, listener, pool, monitor, fullconn), servers: rendered.map(({ words }) => words) },
    // every algorithm above is dynamic: source only because its hash is consistent
    backend: { name: backendName(pool, listener), dynamic: true, servers: rendered.map(({ server }) => server) },
    members: members.map(member => member.id),
  }
}

function backendModel(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  pool: PoolNode,
  monitor: HealthMonitorNode | null,
  fullconn: number,
): Omit<BackendModel, 'servers'> {
  const what = `Listener ${listener.id}`
  return {
    name: backendIdentifier(pool, listener),
    mode: modeOf(listener),
    http: listener.protocol === 'HTTP',
    balance: keywords(BALANCE[pool.lbAlgorithm]),
    consistentHash: pool.lbAlgorithm === 'SOURCE_IP',
    fullconn: integer(fullconn, `${what}, connection_limit`, 1, 1_000_000),
    timeoutConnect: milliseconds(listener.timeoutMemberConnect, `${what}, timeout_member_connect`),
    timeoutServer: milliseconds(listener.timeoutMemberData, `${what}, timeout_member_data`),
    timeoutCheck: monitor === null ? null : seconds(monitor.timeout, `Health monitor ${monitor.id}, timeout`),
    httpCheck: monitor?.type === 'HTTP' ? httpCheckModel(tree, monitor) : null,
  }
}

/** A listener's mode is also that of its backends. */
export const modeOf = (listener: ListenerNode): ConfigurationWord =>
  keywords(listener.protocol === 'HTTP' ? 'http' : 'tcp')

/** The name of the section that serves a pool for a listener. */
export const backendName = (pool: PoolNode, listener: ListenerNode): string => `${pool.id}:${listener.id}`

export const backendIdentifier = (pool: PoolNode, listener: ListenerNode): ConfigurationWord =>
  identifier(backendName(pool, listener), 'Backend')
