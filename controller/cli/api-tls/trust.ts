import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import type { Configuration } from '../../config/schema.js'
import { readPem } from '../../options/pem-file.js'
import { writePrivateFile } from '../../process/private-file.js'
import { authorityCertificateFile } from './authority.js'

/** What a client of the APIs needs to know. */
type Instance = { directory: string; config: Configuration }

/**
 * The file with the CAs that clients of the APIs need: the APIs' own, `api.tls.ca_file`, or both in one. Null when the
 * public CAs do. Until the certificate of `api.tls.reference` is read, only Krater's own clients accept what is presented.
 */
export function clientAuthorityFile({ directory, config: { api } }: Instance): string | null {
  const { internal_ca: isOwn, ca_file: other } = api.tls
  if (isOwn && other !== undefined) return bundleFile(directory)
  return isOwn ? authorityCertificateFile(directory) : (other ?? null)
}

/** @throws ConfigurationError when a file cannot be used */
export function writeClientAuthorities(instance: Instance): void {
  const path = bundleFile(instance.directory)
  if (clientAuthorityFile(instance) === path)
    writePrivateFile(path, `${namedAuthorities(instance).join('\n')}\n`, 0o644)
}

/**
 * The CAs that Krater's own clients of the APIs trust, as PEM: the public ones and those of the settings. Undefined when
 * the settings name none.
 * @throws ConfigurationError when a file cannot be used
 */
export function trustedAuthorities(instance: Instance): string | undefined {
  const named = namedAuthorities(instance)
  return named.length === 0 ? undefined : [...rootCertificates, ...named].join('\n')
}

const bundleFile = (directory: string): string => join(directory, 'api-ca-bundle.pem')

function namedAuthorities({ directory, config: { api } }: Instance): string[] {
  const { internal_ca, reference, ca_file } = api.tls
  const isOwn = internal_ca || reference !== undefined
  return [
    ...(ca_file === undefined ? [] : [readPem(ca_file, 'api.tls.ca_file')]),
    ...(isOwn ? [readPem(authorityCertificateFile(directory), "the CA of the APIs' certificates")] : []),
  ]
}
