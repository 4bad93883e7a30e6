import { rootCertificates } from 'node:tls'
import type { Configuration } from '../../config/schema.js'
import { servesTls } from '../../http/options.js'
import { readPem } from '../../options/pem-file.js'
import { authorityCertificateFile } from './authority.js'

/** What a client of the APIs needs to know. */
type Instance = { directory: string; config: Configuration }

/**
 * The file with the CAs that clients of the APIs need; null when the public CAs do, or without TLS.
 * Until the certificate of `reference` is read, the APIs present one of their own CA, which only Krater's own clients need.
 */
export function clientAuthorityFile({ directory, config: { api } }: Instance): string | null {
  return api.tls.internal_ca ? authorityCertificateFile(directory) : (api.tls.ca_file ?? null)
}

/**
 * The CAs that Krater's own clients of the APIs trust, as PEM: the public ones and those of the settings. Undefined
 * without TLS.
 * @throws ConfigurationError when a file cannot be used
 */
export function trustedAuthorities({ directory, config: { api } }: Instance): string | undefined {
  if (!servesTls(api)) return undefined
  const own = api.tls.internal_ca || api.tls.reference !== undefined
  return [
    ...rootCertificates,
    ...(api.tls.ca_file === undefined ? [] : [readPem(api.tls.ca_file, 'api.tls.ca_file')]),
    ...(own ? [readPem(authorityCertificateFile(directory), "the CA of the APIs' certificates")] : []),
  ].join('\n')
}
