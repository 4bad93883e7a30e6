import { badRequest } from '../../../http/errors.js'
import type { LoadBalancerSettings } from '../../options.js'
import type { Created, Updated } from '../../schema/attributes.js'
import { invalid } from '../../schema/faults.js'
import { invalidInput } from '../../schema/input.js'
import { MISSING } from '../../schema/values.js'
import {
  checkCiphers,
  checkTlsVersions,
  defaultTlsOptions,
  type TlsOptions,
  type TlsSettings,
} from '../listeners/tls-options.js'
import { isDatagram } from '../protocols.js'
import type { pool } from './resource.js'

export type PoolSettings = TlsSettings & Pick<LoadBalancerSettings, 'default_pool_ciphers'>

type PoolValues = Omit<Created<typeof pool.attributes>, 'loadbalancer_id' | 'listener_id'>
type Given = Updated<typeof pool.attributes>
type Persistence = NonNullable<PoolValues['session_persistence']>
/** Stored values that an update is checked against. */
export type StoredPool = Pick<
  PoolValues,
  | 'protocol'
  | 'admin_state_up'
  | 'session_persistence'
  | 'tls_enabled'
  | 'ca_tls_container_ref'
  | 'crl_container_ref'
  | keyof TlsOptions
>

const TLS_FIELDS = [
  'tls_enabled',
  'tls_container_ref',
  'ca_tls_container_ref',
  'crl_container_ref',
  'tls_ciphers',
  'tls_versions',
  'alpn_protocols',
] as const

/**
 * Checks a create body, and fills in defaults that depend on other values.
 * @throws ApiError 400
 */
export function completePool<T extends PoolValues>(settings: PoolSettings, values: T): T {
  const { session_persistence: persistence } = values
  if (persistence !== null) checkPersistence(values.protocol, persistence)
  checkPoolTls(settings, values, values)
  return { ...values, ...(values.tls_enabled ? withDefaults(settings, values) : {}) }
}

/**
 * Checks an update body against the stored values, and resolves nulls. Session persistence is replaced as a
 * whole, but keeps its type if none is given; an empty object removes it.
 * @throws ApiError 400
 */
export function completePoolUpdate(settings: PoolSettings, stored: StoredPool, values: Given): Given {
  const complete = { ...values }
  if (values.session_persistence !== undefined) {
    complete.session_persistence = replacedPersistence(stored.session_persistence, values.session_persistence)
    if (complete.session_persistence !== null) checkPersistence(stored.protocol, complete.session_persistence)
  }
  const resulting = { ...stored, ...values }
  checkPoolTls(settings, resulting, values)
  return resulting.tls_enabled ? { ...complete, ...withDefaults(settings, resulting) } : complete
}

function replacedPersistence(stored: Persistence | null, given: Persistence | null): Persistence | null {
  if (given === null || Object.values(given).every(value => value === null)) return null
  return { ...given, type: given.type ?? stored?.type ?? null }
}

/** @throws ApiError 400 */
function checkPersistence(protocol: string, persistence: Persistence): void {
  const { type, cookie_name, persistence_timeout, persistence_granularity } = persistence
  if (type === null) throw badRequest(invalidInput('session_persistence.type', null, MISSING))
  if (isDatagram(protocol)) {
    if (type !== 'SOURCE_IP') {
      throw invalid(`Session persistence of type ${type} is not supported for ${protocol} protocol pools.`)
    }
    if (cookie_name !== null) throw invalid(`Cookie names are not supported for ${protocol} pools.`)
    return
  }
  if (persistence_timeout !== null || persistence_granularity !== null) {
    throw invalid(`persistence_timeout and persistence_granularity are only for UDP and SCTP pools, not ${protocol}.`)
  }
  if (type !== 'SOURCE_IP' && (protocol === 'TCP' || protocol === 'HTTPS')) {
    throw invalid(
      `Session persistence of type ${type} is not supported for ${protocol} protocol pools: their traffic is not read. Use SOURCE_IP.`,
    )
  }
  if (type === 'APP_COOKIE' && cookie_name === null) {
    throw invalid('The cookie_name is required for session persistence of type APP_COOKIE.')
  }
  if (type === 'SOURCE_IP' && cookie_name !== null) {
    throw invalid('A cookie_name is only for session persistence of type APP_COOKIE or HTTP_COOKIE.')
  }
}

/** @param resulting values after the update @param given values of the request */
function checkPoolTls(settings: PoolSettings, resulting: StoredPool, given: Given): void {
  const named = TLS_FIELDS.filter(field => (given[field] ?? false) !== false)
  if (isDatagram(resulting.protocol) && named.length > 0) {
    throw invalid(`TLS options are not supported for ${resulting.protocol} pools: ${named.join(', ')}.`)
  }
  const touched = given.ca_tls_container_ref !== undefined || given.crl_container_ref !== undefined
  if (touched && resulting.crl_container_ref !== null && resulting.ca_tls_container_ref === null) {
    throw invalid('A CA certificate reference is required to specify a revocation list.')
  }
  checkCiphers(settings, given.tls_ciphers)
  if (resulting.tls_enabled && (given.tls_versions !== undefined || given.tls_enabled !== undefined)) {
    checkTlsVersions(settings, resulting.tls_versions)
  }
}

function withDefaults(settings: PoolSettings, values: TlsOptions): TlsOptions {
  const defaults = defaultTlsOptions(settings, settings.default_pool_ciphers)
  return {
    tls_ciphers: values.tls_ciphers ?? defaults.tls_ciphers,
    tls_versions: values.tls_versions ?? defaults.tls_versions,
    alpn_protocols: values.alpn_protocols ?? defaults.alpn_protocols,
  }
}
