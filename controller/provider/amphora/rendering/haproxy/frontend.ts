import type { ListenerNode, LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
import type { AmphoraFacts } from '../facts.js'
import {
  address,
  type ConfigurationWord,
  cidr,
  endpoint,
  headerValue,
  identifier,
  integer,
  joined,
  keywords,
  logFormat,
  milliseconds,
} from '../quote.js'
import { modeOf } from './backend.js'
import { type Front, HTTP_ANSWERS, type HttpAnswers, handedOverBind } from './challenges.js'
import { servesMetrics } from './metrics.js'
import { isHttp } from './mode.js'
import { bindTls, type CertificateErrors, proofBind, terminatesTls } from './tls.js'

/** A `frontend` section: one listener. */
export type FrontendModel = {
  name: ConfigurationWord
  mode: ConfigurationWord
  http: boolean
  /** Null if it answers no challenges by HTTP. */
  challenges: HttpAnswers | null
  /** Serves only metrics: this HAProxy's own, or from the default backend under Octavia's names. */
  metrics: { own: boolean } | null
  /** One per VIP. */
  binds: ConfigurationWord[]
  /** Headers about a client's certificate are removed from requests, since only a listener may write them. */
  removesCertificateHeaders: boolean
  strictTransportSecurity: ConfigurationWord | null
  /** Sources that may connect; if empty, all may. */
  allowedSources: ConfigurationWord[]
  /** Addresses of the load balancer's amphorae, from which what the listener serves is looked at. */
  provenFrom: ConfigurationWord[]
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
const FORWARDING_HEADERS: Readonly<Record<string, ConfigurationWord>> = {
  'X-Forwarded-Port': logFormat`%[dst_port]`,
  'X-Forwarded-IP': logFormat`%[src]`,
  'X-Client-IP': logFormat`%[src]`,
  'X-Real-IP': logFormat`%[src]`,
}
const HTTP_HEADERS: Readonly<Record<string, ConfigurationWord>> = {
  ...FORWARDING_HEADERS,
  'X-Forwarded-Proto': logFormat`http`,
}
/** Those of a listener that terminates TLS. */
const HTTPS_HEADERS: Readonly<Record<string, ConfigurationWord>> = {
  ...FORWARDING_HEADERS,
  'X-Forwarded-Proto': logFormat`https`,
  'X-SSL-Client-Verify': logFormat`%[ssl_c_verify]`,
  'X-SSL-Client-Has-Cert': logFormat`%[ssl_c_used]`,
  'X-SSL-Client-DN': logFormat`%{+Q}[ssl_c_s_dn]`,
  'X-SSL-Client-CN': logFormat`%{+Q}[ssl_c_s_dn(cn)]`,
  'X-SSL-Issuer': logFormat`%{+Q}[ssl_c_i_dn]`,
  'X-SSL-Client-SHA1': logFormat`%{+Q}[ssl_c_sha1,hex]`,
  'X-SSL-Client-Not-Before': logFormat`%{+Q}[ssl_c_notbefore]`,
  'X-SSL-Client-Not-After': logFormat`%{+Q}[ssl_c_notafter]`,
}

export type FrontendContext = {
  /** Of the default pool, if it can serve, or of the metrics; a PROMETHEUS listener without one shows HAProxy's own. */
  defaultBackend: ConfigurationWord | null
  /** The listener's share of the amphora's connections. */
  maxconn: number
  /** Bad certificates of clients that its policies are about. */
  handledErrors: CertificateErrors
  hasDefaultAlpn: boolean
  pair: AmphoraFacts['pair']
  /** A proxy looks at the handshakes of the listener first. */
  isLookedAt: boolean
  answersChallenges: boolean
  /** A listener of the load balancer inserts such headers: members believe those that another one lets through. */
  membersTrustCertificateHeaders: boolean
}

/**
 * @returns the listener, and what it leaves to a proxy before it, if there is one
 * @throws ProvisioningFault for a value that cannot be written
 */
export function frontendModel(
  tree: LoadBalancerTree,
  listener: ListenerNode,
  {
    defaultBackend,
    maxconn,
    handledErrors,
    hasDefaultAlpn,
    pair,
    isLookedAt,
    answersChallenges,
    membersTrustCertificateHeaders,
  }: FrontendContext,
): { model: FrontendModel; front: Front | null } {
  const what = `Listener ${listener.id}`
  const http = isHttp(listener)
  const tls = terminatesTls(listener)
  const vips = [tree.vip, ...tree.additionalVips].map(vip => vip.address)
  const formats = tls ? HTTPS_HEADERS : HTTP_HEADERS
  const headers = http ? insertedHeaders(listener, formats) : []
  const places = vips.map(vip => endpoint(vip, listener.protocolPort, `${what}, address`))
  const front: Front = {
    binds: places,
    allowedSources: (listener.allowedCidrs ?? []).map(source => cidr(source, `${what}, allowed_cidrs`)),
    provenFrom: tls ? [...vips, ...(pair?.peers ?? []).map(peer => peer.address)].map(from => address(from, what)) : [],
    // To HAProxy, 0 means unlimited.
    rejectsAll: maxconn === 0,
    maxconn: integer(Math.max(1, maxconn), `${what}, connection_limit`, 1, 10_000_000),
  }
  const tlsWords = tls ? [bindTls(listener, handledErrors, hasDefaultAlpn)] : []
  const model: FrontendModel = {
    ...front,
    ...(isLookedAt && { allowedSources: [], rejectsAll: false }),
    challenges: answersChallenges && listener.protocol === 'HTTP' ? HTTP_ANSWERS : null,
    name: identifier(listener.id, `${what}, id`),
    mode: modeOf(listener),
    http,
    metrics: servesMetrics(listener) ? { own: defaultBackend === null } : null,
    binds: [
      ...(isLookedAt ? [handedOverBind(listener)] : places).map(place => joined([place, ...tlsWords])),
      ...(tls && pair !== null ? [joined([proofBind(listener), ...tlsWords])] : []),
    ],
    removesCertificateHeaders: http && (tls || membersTrustCertificateHeaders),
    strictTransportSecurity: tls ? hstsValue(listener, what) : null,
    timeoutClient: milliseconds(listener.timeoutClientData, `${what}, timeout_client_data`),
    // Only HTTP has a request line and a status. The two dashes before %b replace fields of a client certificate.
    logFormat: tls
      ? logFormat`${tree.projectId} ${tree.id} %f %ci %cp %t %{+Q}r %ST %B %U %[ssl_c_verify] %{+Q}[ssl_c_s_dn] %b %s %Tt %tsc`
      : http
        ? logFormat`${tree.projectId} ${tree.id} %f %ci %cp %t %{+Q}r %ST %B %U - - %b %s %Tt %tsc`
        : logFormat`${tree.projectId} ${tree.id} %f %ci %cp %t - - %B %U - - %b %s %Tt %tsc`,
    // HTTP waits for a complete request anyway. In TCP mode, the template's content rule makes the delay effective.
    inspectDelay:
      http || listener.timeoutTcpInspect === 0
        ? null
        : milliseconds(listener.timeoutTcpInspect, `${what}, timeout_tcp_inspect`),
    forwardedFor: headers.includes('X-Forwarded-For'),
    setHeaders: headers.flatMap(header => {
      const format = formats[header]
      return format === undefined ? [] : [{ header: keywords(header), format }]
    }),
    defaultBackend,
  }
  return { model, front: isLookedAt ? front : null }
}

/** Whether a listener tells members about the certificates of clients. */
export const insertsCertificateHeaders = (listener: ListenerNode): boolean =>
  terminatesTls(listener) && insertedHeaders(listener, HTTPS_HEADERS).some(header => header.startsWith('X-SSL-'))

/** The enabled keys in a fixed order. The API refuses unknown ones. */
function insertedHeaders(listener: ListenerNode, formats: Readonly<Record<string, ConfigurationWord>>): string[] {
  const known = ['X-Forwarded-For', ...Object.keys(formats)]
  return known.filter(header => listener.insertHeaders[header]?.toLowerCase() === 'true')
}

/** The value of the Strict-Transport-Security header; null to send none. */
function hstsValue(
  { hstsMaxAge, hstsIncludeSubdomains, hstsPreload }: ListenerNode,
  what: string,
): ConfigurationWord | null {
  if (hstsMaxAge === null) return null
  const parts = [
    `max-age=${hstsMaxAge}`,
    ...(hstsIncludeSubdomains ? ['includeSubDomains'] : []),
    ...(hstsPreload ? ['preload'] : []),
  ]
  return headerValue(parts.join('; '), `${what}, hsts`)
}
