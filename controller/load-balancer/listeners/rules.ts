import type { Created, Updated } from '../attributes.js'
import { invalid } from '../faults.js'
import type { listener } from './resource.js'

type ListenerProtocol = Created<typeof listener.attributes>['protocol']

/** Layer-4 protocol that a listener's port belongs to. */
export function transportOf(protocol: ListenerProtocol): 'tcp' | 'udp' | 'sctp' {
  return protocol === 'UDP' ? 'udp' : protocol === 'SCTP' ? 'sctp' : 'tcp'
}

/** Listener protocol -> pool protocols that it may use. */
const POOL_PROTOCOLS_OF: Readonly<Record<ListenerProtocol, readonly string[]>> = {
  TCP: ['TCP', 'HTTP', 'HTTPS', 'PROXY', 'PROXYV2'],
  HTTP: ['HTTP', 'PROXY', 'PROXYV2'],
  HTTPS: ['HTTPS', 'TCP', 'PROXY', 'PROXYV2'],
  TERMINATED_HTTPS: ['HTTP', 'PROXY', 'PROXYV2'],
  UDP: ['UDP'],
  SCTP: ['SCTP'],
  PROMETHEUS: [],
}

/** @throws ApiError 400 when a listener cannot use a pool of this protocol */
export function checkPoolProtocol(listenerProtocol: string, poolProtocol: string): void {
  const allowed: Readonly<Record<string, readonly string[]>> = POOL_PROTOCOLS_OF
  if (allowed[listenerProtocol]?.includes(poolProtocol) === true) return
  throw invalid(`The pool protocol '${poolProtocol}' is invalid while the listener protocol is '${listenerProtocol}'.`)
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
 * What a listener's values must agree on among themselves.
 * @param values those of a create or update body
 * @throws ApiError 400
 */
export function checkListener(protocol: string, values: Updated<typeof listener.attributes>): void {
  const headers = Object.keys(values.insert_headers ?? {})
  if (headers.length > 0 && protocol !== 'HTTP' && protocol !== 'TERMINATED_HTTPS') {
    throw invalid(`A ${protocol} listener cannot insert headers.`)
  }
  const known = protocol === 'TERMINATED_HTTPS' ? [...FORWARDING_HEADERS, ...TLS_HEADERS] : FORWARDING_HEADERS
  const unknown = headers.filter(header => !known.includes(header))
  if (unknown.length > 0) {
    throw invalid(`These headers cannot be inserted by a ${protocol} listener: ${unknown.slice(0, 10).join(', ')}`)
  }
  const certificates = [
    values.default_tls_container_ref,
    values.client_ca_tls_container_ref,
    values.client_crl_container_ref,
  ]
  const named =
    certificates.some(reference => typeof reference === 'string') || (values.sni_container_refs ?? []).length > 0
  if (named && protocol !== 'TERMINATED_HTTPS' && protocol !== 'PROMETHEUS') {
    throw invalid(`Certificate references are not allowed on a ${protocol} listener.`)
  }
  if (typeof values.hsts_max_age === 'number' && protocol !== 'TERMINATED_HTTPS') {
    throw invalid('HSTS works only on TERMINATED_HTTPS listeners.')
  }
  if (
    (values.hsts_include_subdomains === true || values.hsts_preload === true) &&
    typeof values.hsts_max_age !== 'number'
  ) {
    throw invalid('HSTS configuration options hsts_include_subdomains and hsts_preload need hsts_max_age.')
  }
}
