import { IdentityUnavailable } from '../../identity/external/identity-unavailable.js'
import { type CheckLimits, CheckTooSlow, checkUnavailable, createChecks } from '../../inspection/checks.js'
import type { InspectorOptions } from '../../inspection/inspector.js'
import type { Logger } from '../../log/log.js'
import { badReferencesIn, type CertificateSource } from '../certificate-source.js'
import { KeyManagerUnavailable } from './errors.js'
import { createKeyManagerClient, type KeyManagerClientOptions } from './key-manager-client.js'
import { createReader } from './reader.js'
import type { ServiceUser } from './service-user.js'

export type BarbicanOptions = {
  /** Its `url` is the key manager's root, without /v1. */
  keyManager: KeyManagerClientOptions
  serviceUser: ServiceUser
  inspector: InspectorOptions
  limits?: CheckLimits
  log: Logger
}

/** Certificates in a key manager with Barbican's API. Always reached over HTTP. */
export function createBarbicanSource(options: BarbicanOptions): CertificateSource {
  const { keyManager, serviceUser, log, inspector, limits } = options
  const client = createKeyManagerClient(keyManager)
  const checks = createChecks(inspector, limits)
  return {
    check: async ({ token, project, user }, _, requested) => {
      const verdicts = await checks
        .check([project, user], requested, signal => createReader({ client, serviceUser, token, signal }))
        .catch(error => {
          if (!isAway(error)) throw error
          log.warn(`Cannot check certificate references: ${error.message}`)
          throw checkUnavailable('The key manager does not answer, so certificate references cannot be checked')
        })
      return badReferencesIn(verdicts)
    },
    close: client.close,
  }
}

const isAway = (error: unknown): error is Error =>
  [KeyManagerUnavailable, IdentityUnavailable, CheckTooSlow].some(kind => error instanceof kind)
