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
import { serverTls, terminatesTls } from './tls.js'

/** A `backend` section: one pool for one listener. */
export type BackendModel = {
  name: ConfigurationWord
  mode: ConfigurationWord
  http: boolean
  /** HAProxy's http-reuse: which connections to members may serve further requests. */
  reuse: ConfigurationWord
  balance: ConfigurationWord
  consistentHash: boolean
  /** The balance expression reads the client's port from a variable. */
  keepsSourcePort: boolean
  persistence: PersistenceModel
  /** Stores the name in the Host header for SNI. */
  asksForHost: boolean
  timeoutConnect: ConfigurationWord
  timeoutServer: ConfigurationWord
  timeoutCheck: ConfigurationWord | null
  httpCheck: HttpCheckModel | null
  servers: ServerWords[]
}

/** All algorithms are dynamic, with consistent hashing, so that servers can be added and removed at runtime. */
const BALANCE: Record<Algorithm, ConfigurationWord> = {
  ROUND_ROBIN: keywords('roundrobin'),
  LEAST_CONNECTIONS: keywords('leastconn'),
  SOURCE_IP: keywords('source'),
  // The template stores the port in this variable.
  SOURCE_IP_PORT: sample('hash src,concat(:,txn.source_port)'),
}

const HASHING: readonly Algorithm[] = ['SOURCE_IP', 'SOURCE_IP_PORT']

/** What the target HAProxy can do. */
export type HaproxyFeatures = {
  /** It can add servers with a cookie at runtime. */
  addsServersWithCookies: boolean
}

export type RenderedBackend = {
  model: BackendModel
  /** The same servers in the form that the agent uses. */
  backend: Backend
  /** Member ids in the order of the servers. */
  members: string[]
}

/**
 * Renders a pool for one listener with all its members. Omits members under deletion; a disabled member becomes a
 * disabled server.
 * @throws ProvisioningFault for a value that cannot be written
 */
export function renderBackend(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  pool: PoolNode,
  { addsServersWithCookies }: HaproxyFeatures,
): RenderedBackend {
  const members = pool.members
    .filter(member => member.change !== 'delete')
    .sort((a, b) => a.serverNumber - b.serverNumber)
  const monitor = pool.healthMonitor !== null && isDesired(pool.healthMonitor) ? pool.healthMonitor : null
  const model = backendModel(tree, listener, pool, monitor)
  const name = backendName(pool, listener)
  const isReused = isHttp(listener) && reusesConnections(pool)
  const hasCookies = model.persistence.cookie !== null
  const tls = serverTls(pool, isHttp(listener))
  const clientName = tls.length === 0 ? null : clientNameFor(listener)
  const rendered = members.map(member => {
    const cookie = hasCookies ? cookieValue(member) : null
    return renderServer(member, {
      backend: name,
      protocol: pool.protocol,
      tls,
      clientName,
      reused: isReused,
      monitor,
      cookie,
    })
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
    asksForHost: pool.tlsEnabled && isHttp(listener) && !terminatesTls(listener),
    timeoutConnect: milliseconds(listener.timeoutMemberConnect, `${what}, timeout_member_connect`),
    timeoutServer: milliseconds(listener.timeoutMemberData, `${what}, timeout_member_data`),
    timeoutCheck: monitor === null ? null : checkTimeout(monitor),
    httpCheck: monitor?.type === 'HTTP' || monitor?.type === 'HTTPS' ? httpCheckModel(tree, monitor) : null,
  }
}

/** What a client asked for: by SNI, or else by its Host header, unless that is an address; a relayed connection tells nothing. */
function clientNameFor(listener: ListenerNode): ConfigurationWord | null {
  if (terminatesTls(listener)) return keywords('ssl_fc_sni')
  // The template stores the name in this variable.
  return isHttp(listener) ? sample('var(txn.krater_host_name)') : null
}

/** A connection that starts with a PROXY header belongs to one client. */
const reusesConnections = (pool: PoolNode): boolean => pool.protocol === 'HTTP'

/** The agent's answer about a pinged member takes slightly longer than the ping. */
const ANSWER_SECONDS = 2

function checkTimeout(monitor: HealthMonitorNode): ConfigurationWord {
  const time = monitor.type === 'PING' ? pingTimeout(monitor) + ANSWER_SECONDS : monitor.timeout
  return seconds(time, `Health monitor ${monitor.id}, timeout`)
}

/** HAProxy mode of a listener and its backends. */
export const modeOf = (listener: ListenerNode): ConfigurationWord => keywords(isHttp(listener) ? 'http' : 'tcp')

/** Name of the backend section of a pool for a listener. */
export const backendName = (pool: PoolNode, listener: ListenerNode): string => `${pool.id}:${listener.id}`

export const backendIdentifier = (pool: PoolNode, listener: ListenerNode): ConfigurationWord =>
  identifier(backendName(pool, listener), 'Backend')
