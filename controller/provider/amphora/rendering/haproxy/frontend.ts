import type { ListenerNode, LoadBalancerTree, PoolNode } from '../../../../load-balancer/tree/tree.js'
import {
  type ConfigurationWord,
  cidr,
  endpoint,
  identifier,
  integer,
  keywords,
  logFormat,
  milliseconds,
} from '../quote.js'
import { backendIdentifier, modeOf } from './backend.js'
import { isHttp } from './mode.js'

/** One listener as a section `frontend`. */
export type FrontendModel = {
  name: ConfigurationWord
  mode: ConfigurationWord
  http: boolean
  /** It shows this HAProxy's metrics and nothing else. */
  metrics: boolean
  /** One for each VIP. */
  binds: ConfigurationWord[]
  /** Sources that may connect; none named is all. */
  allowedSources: ConfigurationWord[]
  /** Its limit is 0, which HAProxy would take for none. */
  admitsNobody: boolean
  maxconn: ConfigurationWord
  timeoutClient: ConfigurationWord
  logFormat: ConfigurationWord
  inspectDelay: ConfigurationWord | null
  forwardedFor: boolean
  setHeaders: { header: ConfigurationWord; format: ConfigurationWord }[]
  defaultBackend: ConfigurationWord | null
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
 * @param pool the default pool, when it can serve
 * @param maxconn the listener's share of the amphora's connections
 * @throws ProvisioningFault for a value that cannot be written
 */
export function frontendModel(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  pool: PoolNode | undefined,
  maxconn: number,
): FrontendModel {
  const what = `Listener ${listener.id}`
  const http = isHttp(listener)
  const headers = http ? insertedHeaders(listener) : []
  return {
    name: identifier(listener.id, `${what}, id`),
    mode: modeOf(listener),
    http,
    metrics: listener.protocol === 'PROMETHEUS',
    binds: [tree.vip, ...tree.additionalVips].map(vip =>
      endpoint(vip.address, listener.protocolPort, `${what}, address`),
    ),
    allowedSources: (listener.allowedCidrs ?? []).map(source => cidr(source, `${what}, allowed_cidrs`)),
    admitsNobody: maxconn === 0,
    maxconn: integer(Math.max(1, maxconn), `${what}, connection_limit`, 1, 10_000_000),
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
