import type { LoadBalancerSettings } from '../../options.js'
import type { Created, Updated } from '../../schema/attributes.js'
import { invalid } from '../../schema/faults.js'
import { isDatagram } from '../protocols.js'
import type { listener } from './resource.js'
import { checkCiphers, checkTlsVersions, defaultTlsOptions, type TlsOptions, type TlsSettings } from './tls-options.js'

export type ListenerTlsSettings = TlsSettings & Pick<LoadBalancerSettings, 'default_listener_ciphers'>

type Attributes = Created<typeof listener.attributes>
export type TlsValues = Pick<
  Attributes,
  | 'protocol'
  | 'default_tls_container_ref'
  | 'sni_container_refs'
  | 'client_ca_tls_container_ref'
  | 'client_crl_container_ref'
  | 'client_authentication'
  | 'hsts_max_age'
  | keyof TlsOptions
>
type Given = Updated<typeof listener.attributes>

const CLIENT_FIELDS = ['client_ca_tls_container_ref', 'client_crl_container_ref', 'client_authentication'] as const
const OPTION_FIELDS = ['tls_ciphers', 'tls_versions', 'alpn_protocols'] as const
const CERTIFICATE_FIELDS = ['default_tls_container_ref', 'sni_container_refs', 'client_ca_tls_container_ref'] as const

/** Default TLS options: those of the settings for listeners that terminate TLS, otherwise none. */
export function listenerTlsDefaults(settings: ListenerTlsSettings, protocol: string): TlsOptions {
  return protocol === 'TERMINATED_HTTPS'
    ? defaultTlsOptions(settings, settings.default_listener_ciphers)
    : { tls_ciphers: null, tls_versions: null, alpn_protocols: null }
}

/**
 * Checks a listener's TLS values for consistency.
 * @param values the resulting values
 * @param given the values of the request; a create has all of them
 * @throws ApiError 400
 */
export function checkListenerTls(settings: ListenerTlsSettings, values: TlsValues, given: Given): void {
  const { protocol } = values
  refuseMisplacedReferences(protocol, given)
  refuseMisplacedOptions(protocol, given)
  const hasCertificate = values.default_tls_container_ref !== null || values.sni_container_refs.length > 0
  const hasAuthority = values.client_ca_tls_container_ref !== null
  if (hasAuthority && !hasCertificate && CERTIFICATE_FIELDS.some(field => given[field] !== undefined)) {
    throw invalid(
      'An SNI or default certificate container reference must be provided with a client CA container reference.',
    )
  }
  if (CLIENT_FIELDS.some(field => given[field] !== undefined) && !hasAuthority) {
    if (values.client_authentication !== 'NONE') {
      throw invalid('Client authentication setting cannot be enabled without a client CA container reference.')
    }
    if (values.client_crl_container_ref !== null) {
      throw invalid(
        'A client authentication CA reference is required to specify a client authentication revocation list.',
      )
    }
  }
  checkHsts(values, given)
  checkCiphers(settings, given.tls_ciphers)
  if (given.tls_versions !== undefined) checkTlsVersions(settings, given.tls_versions)
}

/** @throws ApiError 400 when a listener that terminates TLS has no certificate */
export function requireCertificate({ protocol, default_tls_container_ref, sni_container_refs }: TlsValues): void {
  if (protocol !== 'TERMINATED_HTTPS' || default_tls_container_ref !== null || sni_container_refs.length > 0) return
  throw invalid('An SNI or default certificate container reference must be provided for TERMINATED_HTTPS listeners.')
}

const isGiven = (reference: string | null | undefined) => typeof reference === 'string'

/** @throws ApiError 400 for certificate references on a listener that cannot use them */
function refuseMisplacedReferences(protocol: string, given: Given): void {
  if (protocol === 'TERMINATED_HTTPS' || protocol === 'PROMETHEUS') return
  const named = [
    given.default_tls_container_ref,
    ...(given.sni_container_refs ?? []),
    given.client_ca_tls_container_ref,
    given.client_crl_container_ref,
  ].some(isGiven)
  if (named) throw invalid(`Certificate container references are not allowed on ${protocol} protocol listeners.`)
}

/** @throws ApiError 400 for TLS options of a listener whose datagrams nobody decrypts */
function refuseMisplacedOptions(protocol: string, given: Given): void {
  const named = OPTION_FIELDS.filter(field => (given[field] ?? null) !== null)
  if (isDatagram(protocol) && named.length > 0) {
    throw invalid(`TLS options are not supported for ${protocol} listeners: ${named.join(', ')}.`)
  }
}

function checkHsts({ protocol, hsts_max_age }: TlsValues, given: Given): void {
  if (enablesHstsOption(given) && hsts_max_age === null) {
    throw invalid(
      'HSTS configuration options hsts_include_subdomains and hsts_preload only make sense if hsts_max_age is set as well.',
    )
  }
  if (typeof given.hsts_max_age === 'number' && protocol !== 'TERMINATED_HTTPS') {
    throw invalid('The HSTS feature can only be enabled for a TERMINATED_HTTPS listener.')
  }
}

const enablesHstsOption = ({ hsts_include_subdomains, hsts_preload }: Given) =>
  hsts_include_subdomains === true || hsts_preload === true
