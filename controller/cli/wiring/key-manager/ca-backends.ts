import { InvalidX509 } from '../../../../x509/invalid-x509.js'
import { createCaBackends } from '../../../key-manager/certificate-authorities/backends.js'
import type { CaBackend } from '../../../key-manager/certificate-authorities/ca-backend.js'
import type { Logger } from '../../../log/log.js'
import { OperatorError } from '../../operator-error.js'

/**
 * Opens the configured CA back ends and registers their CAs; the first start creates the root CA.
 * @throws OperatorError when one of their settings is invalid
 */
export async function openCaBackends(
  service: Parameters<typeof createCaBackends>[0],
  log?: Logger,
): Promise<readonly CaBackend[]> {
  const backends = createCaBackends(service, log)
  try {
    for (const backend of backends) await backend.prepare()
  } catch (error) {
    throw error instanceof InvalidX509
      ? new OperatorError(`key_manager.certificate_authority.root_subject_dn: ${error.message}`)
      : error
  }
  return backends
}
