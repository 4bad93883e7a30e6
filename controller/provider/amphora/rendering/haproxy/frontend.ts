import type { ListenerNode, LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
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
import { modeOf } from './backend.js'
import { servesMetrics } from './metrics.js'
import { isHttp } from './mode.js'

/** A `frontend` section: one listener. */
export type FrontendModel = {
  name: ConfigurationWord
  mode: ConfigurationWord
  http: boolean
  /** Serves only metrics: this HAProxy's own, or from the default backend under Octavia's names. */
  metrics: { own: boolean } | null
  /** One per VIP. */
  binds: ConfigurationWord[]
  /** Sources that may connect; if empty, all may. */
  allowedSources: ConfigurationWord[]
  /** The connection limit is 0, which to HAProxy means unlimited. */
  rejectsAll: boolean
  maxconn: ConfigurationWord
  timeoutClient: ConfigurationWord
  logFormat: ConfigurationWord
  inspectDelay: ConfigurationWord | null
  forwardedFor: boolean
  setHeaders: { header: ConfigurationWord; format: ConfigurationWord }[]
  defaultBackend: ConfigurationWord | null
}

/** Values of the insert_headers keys, except X-Forwarded-For, to which HAProxy's option forwardfor appends. */
const INSERTED_HEADERS: Readonly<Record<string, ConfigurationWord>> = {
  'X-Forwarded-Port': logFormat`%[dst_port]`,
  'X-Forwarded-Proto': logFormat`http`,
  'X-Forwarded-IP': logFormat`%[src]`,
  'X-Client-IP': logFormat`%[src]`,
  'X-Real-IP': logFormat`%[src]`,
}

/**
 * @param defaultBackend of the default pool, if it can serve, or of the metrics; a PROMETHEUS listener without one
 *   shows HAProxy's own
 * @param maxconn the listener's share of the amphora's connections
 * @throws ProvisioningFault for a value that cannot be written
 */
export function frontendModel(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  defaultBackend: ConfigurationWord | null,
  maxconn: number,
): FrontendModel {
  const what = `Listener ${listener.id}`
  const http = isHttp(listener)
  const headers = http ? insertedHeaders(listener) : []
  return {
    name: identifier(listener.id, `${what}, id`),
    mode: modeOf(listener),
    http,
    metrics: servesMetrics(listener) ? { own: defaultBackend === null } : null,
    binds: [tree.vip, ...tree.additionalVips].map(vip =>
      endpoint(vip.address, listener.protocolPort, `${what}, address`),
    ),
    allowedSources: (listener.allowedCidrs ?? []).map(source => cidr(source, `${what}, allowed_cidrs`)),
    rejectsAll: maxconn === 0,
    maxconn: integer(Math.max(1, maxconn), `${what}, connection_limit`, 1, 10_000_000),
    timeoutClient: milliseconds(listener.timeoutClientData, `${what}, timeout_client_data`),
    // Only HTTP has a request line and a status. The two dashes before %b replace fields of a client certificate.
    logFormat: http
      ? logFormat`${tree.projectId} ${tree.id} %f %ci %cp %t %{+Q}r %ST %B %U - - %b %s %Tt %tsc`
      : logFormat`${tree.projectId} ${tree.id} %f %ci %cp %t - - %B %U - - %b %s %Tt %tsc`,
    // HTTP waits for a complete request anyway. In TCP mode, the template's content rule makes the delay effective.
    inspectDelay:
      http || listener.timeoutTcpInspect === 0
        ? null
        : milliseconds(listener.timeoutTcpInspect, `${what}, timeout_tcp_inspect`),
    forwardedFor: headers.includes('X-Forwarded-For'),
    setHeaders: headers.flatMap(header => {
      const format = INSERTED_HEADERS[header]
      return format === undefined ? [] : [{ header: keywords(header), format }]
    }),
    defaultBackend,
  }
}

/** The enabled keys in a fixed order. The API refuses unknown ones. */
function insertedHeaders(listener: ListenerNode): string[] {
  const known = ['X-Forwarded-For', ...Object.keys(INSERTED_HEADERS)]
  return known.filter(header => listener.insertHeaders[header]?.toLowerCase() === 'true')
}
