import { badRequest } from '../../../http/errors.js'
import type { LoadBalancerSettings } from '../../options.js'
import type { Created, Updated } from '../../schema/attributes.js'
import { disabledOption, invalid } from '../../schema/faults.js'
import type { listener } from './resource.js'
import {
  checkListenerTls,
  type ListenerTlsSettings,
  listenerTlsDefaults,
  requireCertificate,
  type TlsValues,
} from './tls-rules.js'

type ListenerProtocol = Created<typeof listener.attributes>['protocol']

/** Layer-4 protocol of a listener's port. */
export function transportOf(protocol: ListenerProtocol): 'tcp' | 'udp' | 'sctp' {
  return protocol === 'UDP' ? 'udp' : protocol === 'SCTP' ? 'sctp' : 'tcp'
}

/** Listener protocol -> pool protocols that it may use. */
const POOL_PROTOCOLS_BY_LISTENER: Readonly<Record<ListenerProtocol, readonly string[]>> = {
  TCP: ['TCP', 'HTTP', 'HTTPS', 'PROXY', 'PROXYV2'],
  HTTP: ['HTTP', 'PROXY', 'PROXYV2'],
  HTTPS: ['HTTPS', 'TCP', 'PROXY', 'PROXYV2'],
  TERMINATED_HTTPS: ['HTTP', 'PROXY', 'PROXYV2'],
  UDP: ['UDP'],
  SCTP: ['SCTP'],
  PROMETHEUS: [],
}

/** A pool that a listener is to use. */
export type UsedPool = { protocol: string; session_persistence: { type: string | null } | null }

/** @throws ApiError 400 when a listener of this protocol cannot use the pool */
export function checkPoolUse(listenerProtocol: string, { protocol, session_persistence: persistence }: UsedPool): void {
  const allowed: Readonly<Record<string, readonly string[]>> = POOL_PROTOCOLS_BY_LISTENER
  if (listenerProtocol === 'PROMETHEUS') throw badRequest('Listeners of type PROMETHEUS cannot have child objects.')
  if (allowed[listenerProtocol]?.includes(protocol) !== true) {
    throw invalid(`The pool protocol '${protocol}' is invalid while the listener protocol is '${listenerProtocol}'.`)
  }
  const type = persistence?.type ?? ''
  if (type.endsWith('COOKIE') && listenerProtocol !== 'HTTP' && listenerProtocol !== 'TERMINATED_HTTPS') {
    throw invalid(
      `The pool keeps clients by cookie (session_persistence ${type}), which a ${listenerProtocol} listener does not read. Use SOURCE_IP.`,
    )
  }
}

const FORWARDING_HEADERS: readonly string[] = [
  'X-Forwarded-For',
  'X-Forwarded-Port',
  'X-Forwarded-Proto',
  'X-Forwarded-IP',
  'X-Client-IP',
  'X-Real-IP',
]
const TLS_HEADERS: readonly string[] = [
  'X-SSL-Client-Verify',
  'X-SSL-Client-Has-Cert',
  'X-SSL-Client-DN',
  'X-SSL-Client-CN',
  'X-SSL-Issuer',
  'X-SSL-Client-SHA1',
  'X-SSL-Client-Not-Before',
  'X-SSL-Client-Not-After',
]

/**
 * Checks that a listener's protocol supports the headers to insert.
 * @throws ApiError 400 that names the protocol or the headers
 */
function checkHeaders(protocol: string, insertHeaders: Readonly<Record<string, string>>): void {
  const headers = Object.keys(insertHeaders)
  if (headers.length > 0 && protocol !== 'HTTP' && protocol !== 'TERMINATED_HTTPS') {
    throw invalid(`Header insertion is not supported for ${protocol} listeners.`)
  }
  const known = protocol === 'TERMINATED_HTTPS' ? [...FORWARDING_HEADERS, ...TLS_HEADERS] : FORWARDING_HEADERS
  const unknown = headers.filter(header => !known.includes(header))
  if (unknown.length > 0) {
    const named = unknown.slice(0, 10).join(', ')
    throw invalid(
      `These headers cannot be inserted by a ${protocol} listener: ${named}. It can insert ${known.join(', ')}.`,
    )
  }
}

export type ListenerSettings = ListenerTlsSettings &
  Pick<LoadBalancerSettings, 'allow_tls_terminated_listeners' | 'allow_prometheus_listeners'>

type NewListenerValues = Omit<Created<typeof listener.attributes>, 'loadbalancer_id' | 'default_pool_id'>

/**
 * Checks a create body, and fills in defaults that depend on the protocol.
 * @throws ApiError 400
 */
export function completeListener<T extends NewListenerValues>(settings: ListenerSettings, values: T): T {
  const { protocol } = values
  const disabled =
    (protocol === 'TERMINATED_HTTPS' && !settings.allow_tls_terminated_listeners) ||
    (protocol === 'PROMETHEUS' && !settings.allow_prometheus_listeners)
  if (disabled) throw disabledOption('protocol', protocol)
  checkHeaders(protocol, values.insert_headers)
  requireCertificate(values)
  checkListenerTls(settings, values, values)
  const defaults = listenerTlsDefaults(settings, protocol)
  return {
    ...values,
    allowed_cidrs: nullIfEmpty(values.allowed_cidrs),
    tls_ciphers: values.tls_ciphers ?? defaults.tls_ciphers,
    tls_versions: values.tls_versions ?? defaults.tls_versions,
    alpn_protocols: values.alpn_protocols ?? defaults.alpn_protocols,
  }
}

type Given = Updated<typeof listener.attributes>
/** Stored values that an update is checked against. */
export type StoredListener = TlsValues

/**
 * Checks an update body against the stored values, and replaces nulls by defaults that depend on the protocol.
 * @throws ApiError 400
 */
export function completeListenerUpdate(settings: ListenerSettings, stored: StoredListener, values: Given): Given {
  const { protocol } = stored
  checkHeaders(protocol, values.insert_headers ?? {})
  const complete = { ...values }
  if (values.allowed_cidrs !== undefined) complete.allowed_cidrs = nullIfEmpty(values.allowed_cidrs)
  checkListenerTls(settings, { ...stored, ...values }, values)
  const defaults = listenerTlsDefaults(settings, protocol)
  if (values.tls_ciphers === null) complete.tls_ciphers = defaults.tls_ciphers
  if (values.tls_versions === null) complete.tls_versions = defaults.tls_versions
  if (values.alpn_protocols === null) complete.alpn_protocols = defaults.alpn_protocols
  return complete
}

/** An empty list means the same as null: all sources. */
const nullIfEmpty = (cidrs: string[] | null): string[] | null => (cidrs === null || cidrs.length === 0 ? null : cidrs)
