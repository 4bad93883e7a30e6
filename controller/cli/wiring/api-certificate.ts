import { createKeyManagerClient } from '../../certificates/barbican/key-manager-client.js'
import { followStoredCertificate } from '../../certificates/barbican/stored-certificate.js'
import type { Logger } from '../../log/log.js'
import { type AuthorityFiles, authorityCertificateFile } from '../api-tls/authority.js'
import { certificateFromAuthority } from '../api-tls/from-authority.js'
import { certificateFromFiles } from '../api-tls/from-files.js'
import { certificateFromReference } from '../api-tls/from-reference.js'
import type { CertificateOrigin } from '../api-tls/origin.js'
import { keyFiles } from '../state-directory/keys.js'
import type { Instance } from './instance.js'
import { openKeyManagerAccess } from './key-manager-access.js'

/** Where the certificate of the APIs comes from. */
export type ApiCertificate = { origin: CertificateOrigin; close: () => void }

/** The files of the APIs' CA; null if the settings need none. */
export function authorityFiles({ directory, config }: Instance): AuthorityFiles | null {
  const { apiAuthority: key } = keyFiles(config, directory)
  return key === null ? null : { key, certificate: authorityCertificateFile(directory) }
}

/** @returns null without TLS @throws ConfigurationError when the certificate cannot be used */
export async function openApiCertificate(instance: Instance, log: Logger): Promise<ApiCertificate | null> {
  const { certificate_file: certificateFile, key_file: keyFile, reference } = instance.config.api.tls
  if (certificateFile !== undefined && keyFile !== undefined) {
    return { origin: await certificateFromFiles(certificateFile, keyFile), close: () => undefined }
  }
  const files = authorityFiles(instance)
  if (files === null) return null
  const issued = certificateFromAuthority(files, instance.config)
  if (reference === undefined) return { origin: issued, close: () => undefined }
  const { keyManager, serviceUser, close } = openKeyManagerAccess(instance, log)
  const client = createKeyManagerClient(keyManager)
  const access = { client, serviceUser, seconds: keyManager.answerSeconds }
  return {
    origin: certificateFromReference(reference, issued, followStoredCertificate(reference, access)),
    close: () => {
      client.close()
      close()
    },
  }
}
