import { readFileSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import type { ExternalIdentity, ServiceCredentials } from '../identity/external/options.js'
import { ConfigurationError } from './load.js'
import type { Configuration } from './schema.js'

/**
 * The Keystone whose tokens count; null when identity is our own.
 * @throws ConfigurationError when a file that is named cannot be read or is not what it should be
 */
export function externalIdentity({ identity }: Pick<Configuration, 'identity'>): ExternalIdentity | null {
  const url = keystoneUrl(identity)
  if (url === null) return null
  const read = (name: 'ca_file' | 'client_certificate_file' | 'client_key_file'): string | undefined => {
    const path = identity[name]
    return path === undefined ? undefined : readPem(path, `identity.${name}`)
  }
  const ca = read('ca_file')
  const clientCertificate = read('client_certificate_file')
  const clientKey = read('client_key_file')
  return {
    url,
    credentials: credentialsOf(identity),
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

/** The external URL, ending in /v3; null when there is none. */
export function keystoneUrl({ external_url: url }: Configuration['identity']): string | null {
  if (url === undefined) return null
  const base = url.replace(/\/+$/, '')
  return base.endsWith('/v3') ? base : `${base}/v3`
}

function credentialsOf(identity: Configuration['identity']): ServiceCredentials {
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

/**
 * A PEM file that a setting names: certificates, or a private key.
 * @throws ConfigurationError when it cannot be read or is not what it should be
 */
export function readPem(path: string, setting: string): string {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new ConfigurationError(`${path} (${setting}) cannot be read (${(error as NodeJS.ErrnoException).code}).`)
  }
  try {
    createSecureContext(setting === 'identity.client_key_file' ? { key: text } : { cert: text })
    return text
  } catch {
    throw new ConfigurationError(`${path} (${setting}) is not a PEM file of the kind that is needed.`)
  }
}
