import { badRequest } from '../../../http/errors.js'
import { selectsCiphers } from '../../../options/cipher-string.js'
import type { LoadBalancerSettings } from '../../options.js'
import { TLS_VERSIONS } from '../../options.js'
import { invalid } from '../../schema/faults.js'
import { nonEmptyListOf, oneOf, text } from '../../schema/values.js'

/** Value types that listeners and pools share. */
export const certificateReference = text(255, {
  minimum: 1,
  pattern: /^[\x21-\x7e]+$/,
  reason: 'Value should be a key manager reference of a secret or container',
})
export const tlsCiphers = text(2048, {
  minimum: 1,
  pattern: /^[A-Za-z0-9\-+!:@=_.]+$/,
  reason: 'Value should be an OpenSSL cipher string',
})
export const tlsVersions = nonEmptyListOf(oneOf(TLS_VERSIONS))
export const alpnProtocols = nonEmptyListOf(
  oneOf(['h2', 'http/1.1', 'http/1.0'], 'Value should be a valid ALPN protocol ID'),
)

export type TlsOptions = {
  tls_ciphers: string | null
  tls_versions: (typeof TLS_VERSIONS)[number][] | null
  alpn_protocols: ('h2' | 'http/1.1' | 'http/1.0')[] | null
}

export type TlsSettings = Pick<LoadBalancerSettings, 'minimum_tls_version' | 'tls_cipher_prohibit_list'>

/** Default TLS options where TLS is enabled. */
export function defaultTlsOptions({ minimum_tls_version }: TlsSettings, ciphers: string): TlsOptions {
  const defaultVersions: TlsOptions['tls_versions'] = ['TLSv1.2', 'TLSv1.3']
  return {
    tls_ciphers: ciphers,
    tls_versions: defaultVersions.filter(version => !isOlder(version, minimum_tls_version)),
    alpn_protocols: ['h2', 'http/1.1', 'http/1.0'],
  }
}

/** @throws ApiError 400 for a prohibited cipher, and when OpenSSL finds no cipher */
export function checkCiphers({ tls_cipher_prohibit_list }: TlsSettings, ciphers: string | null | undefined): void {
  const named = (ciphers ?? '').split(':').map(cipher => cipher.replace(/^\+/, ''))
  const prohibited = named.filter(cipher => tls_cipher_prohibit_list.includes(cipher))
  if (prohibited.length > 0) {
    throw badRequest(`The following ciphers have been prohibited by an administrator: ${prohibited.join(', ')}`)
  }
  if (typeof ciphers === 'string' && !selectsCiphers(ciphers)) {
    throw invalid('OpenSSL finds no cipher, or no TLS_ suite, for tls_ciphers.')
  }
}

/** @throws ApiError 400 for a version older than the minimum */
export function checkTlsVersions({ minimum_tls_version }: TlsSettings, versions: TlsOptions['tls_versions']): void {
  const older = (versions ?? []).filter(version => isOlder(version, minimum_tls_version))
  if (older.length > 0) {
    throw invalid(
      `Requested TLS versions are less than the minimum: ${older.join(', ')} (minimum: ${minimum_tls_version})`,
    )
  }
}

const isOlder = (version: (typeof TLS_VERSIONS)[number], minimum: TlsSettings['minimum_tls_version']): boolean =>
  minimum !== undefined && TLS_VERSIONS.indexOf(version) < TLS_VERSIONS.indexOf(minimum)
