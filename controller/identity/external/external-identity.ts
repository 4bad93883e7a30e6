import type { TransportSecurity } from '../../http/exchange.js'
import { ConfigurationError } from '../../options/configuration-error.js'
import { readPem } from '../../options/pem-file.js'
import type { ExternalIdentitySettings } from './options.js'

/** How Krater's service user signs in at Keystone. */
export type ServiceCredentials =
  | {
      method: 'password'
      username: string
      password: string
      userDomainName: string
      projectName: string
      projectDomainName: string
    }
  | { method: 'application_credential'; id: string; secret: string }

/** A Keystone outside Krater. */
export type ExternalIdentity = {
  /** Ends in /v3. */
  url: string
  credentials: ServiceCredentials
  security: TransportSecurity
  /** How long a validated token is cached: the longest delay before a revocation takes effect. */
  tokenCacheSeconds: number
  connectTimeoutSeconds: number
  /** For one answer, retries included. */
  requestTimeoutSeconds: number
}

/**
 * The external Keystone; null with the embedded identity service.
 * @throws ConfigurationError if a configured file cannot be read or has the wrong content
 */
export function externalIdentity({ identity }: { identity: ExternalIdentitySettings }): ExternalIdentity | null {
  const url = keystoneUrl(identity)
  if (url === null) return null
  const read = (name: 'ca_file' | 'client_certificate_file' | 'client_key_file'): string | undefined => {
    const path = identity[name]
    return path === undefined
      ? undefined
      : readPem(path, `identity.${name}`, name === 'client_key_file' ? 'key' : 'cert')
  }
  const ca = read('ca_file')
  const clientCertificate = read('client_certificate_file')
  const clientKey = read('client_key_file')
  return {
    url,
    credentials: serviceCredentials(identity),
    security: {
      ...(ca !== undefined && { ca }),
      ...(clientCertificate !== undefined && { clientCertificate }),
      ...(clientKey !== undefined && { clientKey }),
      insecure: identity.insecure,
    },
    tokenCacheSeconds: identity.token_cache_seconds,
    connectTimeoutSeconds: identity.connect_timeout,
    requestTimeoutSeconds: identity.request_timeout,
  }
}

/** The external URL, ending in /v3; null if none is configured. */
export function keystoneUrl({ external_url: url }: ExternalIdentitySettings): string | null {
  if (url === undefined) return null
  const base = url.replace(/\/+$/, '')
  return base.endsWith('/v3') ? base : `${base}/v3`
}

function serviceCredentials(identity: ExternalIdentitySettings): ServiceCredentials {
  const { username, password, application_credential_id: id, application_credential_secret: secret } = identity
  if (id !== undefined && secret !== undefined) return { method: 'application_credential', id, secret }
  if (username === undefined || password === undefined) throw new ConfigurationError('identity.username is not set.')
  return {
    method: 'password',
    username,
    password,
    userDomainName: identity.user_domain_name,
    projectName: identity.project_name,
    projectDomainName: identity.project_domain_name,
  }
}
