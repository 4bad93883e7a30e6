import type { Backend } from '../../../../../amphora-agent/protocol/desired.js'
import type {
  Algorithm,
  HealthMonitorNode,
  ListenerNode,
  LoadBalancerTree,
  PoolNode,
} from '../../../../load-balancer/tree/tree.js'
import { isDesired } from '../desired-objects.js'
import { type ConfigurationWord, identifier, keywords, milliseconds, sample, seconds } from '../quote.js'
import { type HttpCheckModel, httpCheckModel } from './checks.js'
import { isHttp } from './mode.js'
import { cookieValue, type PersistenceModel, persistenceModel } from './persistence.js'
import { pingTimeout, renderServer, type ServerWords } from './servers.js'

/** One pool as it serves one listener: a section `backend`. */
export type BackendModel = {
  name: ConfigurationWord
  mode: ConfigurationWord
  http: boolean
  /** Which connections to members serve further requests. */
  reuse: ConfigurationWord
  balance: ConfigurationWord
  consistentHash: boolean
  /** The balance takes the client's port from a variable. */
  keepsSourcePort: boolean
  persistence: PersistenceModel
  timeoutConnect: ConfigurationWord
  timeoutServer: ConfigurationWord
  timeoutCheck: ConfigurationWord | null
  httpCheck: HttpCheckModel | null
  servers: ServerWords[]
}

/** All of them dynamic, so that servers come and go while HAProxy runs: those that hash because their hash is consistent. */
const BALANCE: Record<Algorithm, ConfigurationWord> = {
  ROUND_ROBIN: keywords('roundrobin'),
  LEAST_CONNECTIONS: keywords('leastconn'),
  SOURCE_IP: keywords('source'),
  // the template keeps the port in this variable
  SOURCE_IP_PORT: sample('hash src,concat(:,txn.source_port)'),
}

const HASHING: readonly Algorithm[] = ['SOURCE_IP', 'SOURCE_IP_PORT']

/** The HAProxy that is written for. */
export type HaproxyAbilities = {
  /** It takes servers with a cookie while it runs. */
  addsServersWithCookies: boolean
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
 * @throws ProvisioningFault for a value that cannot be written
 */
export function renderBackend(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  pool: PoolNode,
  { addsServersWithCookies }: HaproxyAbilities,
): RenderedBackend {
  const members = pool.members
    .filter(member => member.change !== 'delete')
    .sort((a, b) => a.serverNumber - b.serverNumber)
  const monitor = pool.healthMonitor !== null && isDesired(pool.healthMonitor) ? pool.healthMonitor : null
  const model = backendModel(tree, listener, pool, monitor)
  const name = backendName(pool, listener)
  const isReused = isHttp(listener) && reusesConnections(pool)
  const hasCookies = model.persistence.cookie !== null
  const rendered = members.map(member => {
    const cookie = hasCookies ? cookieValue(member) : null
    return renderServer(member, { backend: name, protocol: pool.protocol, reused: isReused, monitor, cookie })
  })
  return {
    model: { ...model, servers: rendered.map(({ words }) => words) },
    backend: {
      name,
      dynamic: addsServersWithCookies || !hasCookies,
      deregistrationDelay: pool.deregistrationDelay,
      servers: rendered.map(({ server }) => server),
    },
    members: members.map(member => member.id),
  }
}

function backendModel(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  pool: PoolNode,
  monitor: HealthMonitorNode | null,
): Omit<BackendModel, 'servers'> {
  const what = `Listener ${listener.id}`
  return {
    name: backendIdentifier(pool, listener),
    mode: modeOf(listener),
    http: isHttp(listener),
    reuse: keywords(reusesConnections(pool) ? 'safe' : 'never'),
    balance: BALANCE[pool.lbAlgorithm],
    consistentHash: HASHING.includes(pool.lbAlgorithm),
    keepsSourcePort: pool.lbAlgorithm === 'SOURCE_IP_PORT',
    persistence: persistenceModel(pool, listener),
    timeoutConnect: milliseconds(listener.timeoutMemberConnect, `${what}, timeout_member_connect`),
    timeoutServer: milliseconds(listener.timeoutMemberData, `${what}, timeout_member_data`),
    timeoutCheck: monitor === null ? null : checkTimeout(monitor),
    httpCheck: monitor?.type === 'HTTP' || monitor?.type === 'HTTPS' ? httpCheckModel(tree, monitor) : null,
  }
}

/** A connection that began with a PROXY header speaks for one client only. */
const reusesConnections = (pool: PoolNode): boolean => pool.protocol === 'HTTP'

/** The agent's word about a member that is pinged takes a little longer than the ping. */
const ANSWER_SECONDS = 2

function checkTimeout(monitor: HealthMonitorNode): ConfigurationWord {
  const time = monitor.type === 'PING' ? pingTimeout(monitor) + ANSWER_SECONDS : monitor.timeout
  return seconds(time, `Health monitor ${monitor.id}, timeout`)
}

/** A listener's mode is also that of its backends. */
export const modeOf = (listener: ListenerNode): ConfigurationWord => keywords(isHttp(listener) ? 'http' : 'tcp')

/** The name of the section that serves a pool for a listener. */
export const backendName = (pool: PoolNode, listener: ListenerNode): string => `${pool.id}:${listener.id}`

export const backendIdentifier = (pool: PoolNode, listener: ListenerNode): ConfigurationWord =>
  identifier(backendName(pool, listener), 'Backend')
