import type { Backend, ObjectTable } from '../../../../amphora-agent/protocol/desired.js'
import {
  HAPROXY_GROUP,
  HAPROXY_LOG_LINE,
  HAPROXY_SERVER_STATE_FILE,
  HAPROXY_SOCKET_LINE,
  HAPROXY_USER,
} from '../../../../amphora-agent/protocol/paths.js'
import type {
  Algorithm,
  HealthMonitorNode,
  ListenerNode,
  LoadBalancerTree,
  PoolNode,
} from '../../../load-balancer/tree.js'
import {
  bracketedAddress,
  type ConfigurationWord,
  endpoint,
  headerValue,
  httpMethod,
  identifier,
  integer,
  keywords,
  logFormat,
  milliseconds,
  requestTarget,
  seconds,
  statusCodes,
} from './quote.js'
import { renderServer, type ServerWords } from './servers.js'

/** What the template haproxy.hbs writes: words of the writer, and switches. */
export type HaproxyModel = {
  loadBalancerId: ConfigurationWord
  socketLine: ConfigurationWord
  logLine: ConfigurationWord
  user: ConfigurationWord
  group: ConfigurationWord
  maxconn: ConfigurationWord
  hardStopAfter: ConfigurationWord
  /** Reloads that a worker with open connections survives. */
  mostReloads: ConfigurationWord
  serverStateFile: ConfigurationWord
  frontends: FrontendModel[]
  backends: BackendModel[]
}

type FrontendModel = {
  name: ConfigurationWord
  mode: ConfigurationWord
  http: boolean
  bind: ConfigurationWord
  maxconn: ConfigurationWord
  timeoutClient: ConfigurationWord
  logFormat: ConfigurationWord
  inspectDelay: ConfigurationWord | null
  forwardedFor: boolean
  setHeaders: { header: ConfigurationWord; format: ConfigurationWord }[]
  defaultBackend: ConfigurationWord | null
}

type BackendModel = {
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

type HttpCheckModel = {
  method: ConfigurationWord
  uri: ConfigurationWord
  version: ConfigurationWord
  host: ConfigurationWord | null
  codes: ConfigurationWord
}

export type RenderedHaproxy = { model: HaproxyModel; backends: Backend[]; objects: ObjectTable }

/** What an unlimited listener counts as. */
const DEFAULT_CONNECTION_LIMIT = 50_000

const BALANCE: Record<Algorithm, string> = {
  ROUND_ROBIN: 'roundrobin',
  LEAST_CONNECTIONS: 'leastconn',
  SOURCE_IP: 'source',
  SOURCE_IP_PORT: 'source',
}

/** insert_headers: what each key sets. X-Forwarded-For is appended to by an option of its own. */
const INSERTED_HEADERS: Readonly<Record<string, ConfigurationWord>> = {
  'X-Forwarded-Port': logFormat`%[dst_port]`,
  'X-Forwarded-Proto': logFormat`http`,
  'X-Forwarded-IP': logFormat`%[src]`,
  'X-Client-IP': logFormat`%[src]`,
  'X-Real-IP': logFormat`%[src]`,
}

/**
 * HAProxy's configuration for one load balancer, or null when there is nothing to serve: no enabled listener, or the load balancer is disabled.
 * Pure, and independent of the order of rows. What is disabled or under deletion is left out; a disabled member stays as a
 * disabled server.
 * @param maxConnections upper bound of every maxconn
 * @throws ProvisioningFault for a value that cannot be written
 */
export function haproxyModel(tree: LoadBalancerTree, maxConnections: number): RenderedHaproxy | null {
  if (!tree.adminStateUp || tree.change === 'delete') return null
  const listeners = tree.listeners.filter(isWanted).sort(byId)
  if (listeners.length === 0) return null
  const pools = new Map(tree.pools.filter(isWanted).map(pool => [pool.id, pool]))

  const bound = (limit: number) => Math.min(limit > 0 ? limit : DEFAULT_CONNECTION_LIMIT, maxConnections)
  const frontends: FrontendModel[] = []
  const backendModels: BackendModel[] = []
  const backends: Backend[] = []
  const objects: ObjectTable = { listeners: listeners.map(listener => listener.id), pools: [] }
  for (const listener of listeners) {
    const pool = listener.defaultPoolId === null ? undefined : pools.get(listener.defaultPoolId)
    const maxconn = bound(listener.connectionLimit)
    frontends.push(frontendModel(tree, listener, pool, maxconn))
    if (pool === undefined) continue
    const members = pool.members
      .filter(member => member.change !== 'delete')
      .sort((a, b) => a.serverNumber - b.serverNumber)
    const monitor = pool.healthMonitor !== null && isWanted(pool.healthMonitor) ? pool.healthMonitor : null
    const rendered = members.map(member => renderServer(member, monitor))
    backendModels.push({
      ...backendModel(tree, listener, pool, monitor, maxconn),
      servers: rendered.map(({ words }) => words),
    })
    // every algorithm above is dynamic: source only because its hash is consistent
    backends.push({ name: backendName(pool, listener), dynamic: true, servers: rendered.map(({ server }) => server) })
    objects.pools.push({ poolId: pool.id, listenerId: listener.id, members: members.map(member => member.id) })
  }
  const total = listeners.reduce((sum, listener) => sum + bound(listener.connectionLimit), 0)
  const model: HaproxyModel = {
    loadBalancerId: identifier(tree.id, 'Load balancer id'),
    socketLine: keywords(HAPROXY_SOCKET_LINE),
    logLine: keywords(HAPROXY_LOG_LINE),
    user: keywords(HAPROXY_USER),
    group: keywords(HAPROXY_GROUP),
    maxconn: integer(Math.min(total, maxConnections), 'maxconn', 1, 1_000_000),
    hardStopAfter: keywords('10m'),
    // Whoever changes a listener again and again and keeps a connection open each time would else fill the machine with old workers.
    mostReloads: keywords('20'),
    // A worker that starts takes every server for up until its checks say otherwise. So that a dead member gets no traffic after a reload, the
    // old worker's states are carried over. The agent writes the file, without the servers whose line changed: for those, an old
    // weight or address would come back to life, and one whose monitor was removed would stay down for ever.
    serverStateFile: keywords(HAPROXY_SERVER_STATE_FILE),
    frontends,
    backends: backendModels,
  }
  return { model, backends, objects }
}

function frontendModel(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  pool: PoolNode | undefined,
  maxconn: number,
): FrontendModel {
  const what = `Listener ${listener.id}`
  const http = listener.protocol === 'HTTP'
  const headers = http ? insertedHeaders(listener) : []
  return {
    name: identifier(listener.id, `${what}, id`),
    mode: modeOf(listener),
    http,
    bind: endpoint(tree.vip.address, listener.protocolPort, `${what}, address`),
    maxconn: integer(maxconn, `${what}, connection_limit`, 1, 1_000_000),
    timeoutClient: milliseconds(listener.timeoutClientData, `${what}, timeout_client_data`),
    // a request has a line and a status in HTTP only; the two dashes before %b are the client's certificate, of which there is none
    logFormat: http
      ? logFormat`${tree.projectId} ${tree.id} %f %ci %cp %t %{+Q}r %ST %B %U - - %b %s %Tt %tsc`
      : logFormat`${tree.projectId} ${tree.id} %f %ci %cp %t - - %B %U - - %b %s %Tt %tsc`,
    // HTTP waits for a whole request anyway; without a rule that wants content, the delay would mean nothing
    inspectDelay:
      http || listener.timeoutTcpInspect === 0
        ? null
        : milliseconds(listener.timeoutTcpInspect, `${what}, timeout_tcp_inspect`),
    forwardedFor: headers.includes('X-Forwarded-For'),
    setHeaders: headers.flatMap(header => {
      const format = INSERTED_HEADERS[header]
      return format === undefined ? [] : [{ header: keywords(header), format }]
    }),
    defaultBackend: pool === undefined ? null : backendIdentifier(pool, listener),
  }
}

/** The keys that are switched on, in a fixed order; those unknown here were refused by the API. */
function insertedHeaders(listener: ListenerNode): string[] {
  const known = ['X-Forwarded-For', ...Object.keys(INSERTED_HEADERS)]
  return known.filter(header => listener.insertHeaders[header]?.toLowerCase() === 'true')
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

function httpCheckModel(tree: LoadBalancerTree, monitor: HealthMonitorNode): HttpCheckModel {
  const what = `Health monitor ${monitor.id}`
  return {
    method: httpMethod(monitor.httpMethod ?? 'GET', `${what}, http_method`),
    uri: requestTarget(monitor.urlPath ?? '/', `${what}, url_path`),
    version: keywords(monitor.httpVersion === 1.1 ? 'HTTP/1.1' : 'HTTP/1.0'),
    host: checkedHost(tree, monitor),
    codes: statusCodes(monitor.expectedCodes ?? '200', `${what}, expected_codes`),
  }
}

/** HAProxy adds no Host header to a check by itself, and servers answer HTTP/1.1 without one with 400: the VIP stands in. */
function checkedHost(tree: LoadBalancerTree, monitor: HealthMonitorNode): ConfigurationWord | null {
  if (monitor.domainName !== null) return headerValue(monitor.domainName, `Health monitor ${monitor.id}, domain_name`)
  return monitor.httpVersion === 1.1 ? bracketedAddress(tree.vip.address, 'The VIP address') : null
}

const modeOf = (listener: ListenerNode) => keywords(listener.protocol === 'HTTP' ? 'http' : 'tcp')

const backendName = (pool: PoolNode, listener: ListenerNode) => `${pool.id}:${listener.id}`

const backendIdentifier = (pool: PoolNode, listener: ListenerNode) => identifier(backendName(pool, listener), 'Backend')

const isWanted = (object: { change: string; adminStateUp: boolean }) =>
  object.change !== 'delete' && object.adminStateUp

const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)
