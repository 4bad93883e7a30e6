import type { Database } from '../../database/connection.js'
import type { TokenValidator } from '../../identity/caller.js'
import { externalIdentity } from '../../identity/external/external-identity.js'
import { IdentityUnavailable, ServiceUserRefused } from '../../identity/external/identity-unavailable.js'
import { createExternalValidator } from '../../identity/external/validator.js'
import { databaseTokenValidator } from '../../identity/tokens/validator.js'
import type { Logger } from '../../log/log.js'
import { OperatorError } from '../operator-error.js'
import type { Instance } from './instance.js'

export type TokenValidation = {
  /** Creates the validator of one API. */
  validator: () => TokenValidator
  close: () => void
}

/**
 * Validates tokens in the tables of Krater's own identity service, or at the Keystone of `identity.external_url`. The
 * APIs start even while that Keystone does not answer.
 * @throws OperatorError when Keystone refuses Krater's user
 */
export async function openTokenValidation(
  { config }: Instance,
  openIdentity: () => Database,
  log: Logger,
): Promise<TokenValidation> {
  const external = externalIdentity(config)
  if (external === null) {
    return { validator: () => databaseTokenValidator(openIdentity()), close: () => undefined }
  }
  const { validate, signIn, close } = createExternalValidator(external, log)
  await signIn().catch(error => {
    if (error instanceof ServiceUserRefused) throw refusalError(external.url, error)
    if (!(error instanceof IdentityUnavailable)) throw error
    log.warn(`The APIs answer 503 until Keystone is available: ${error.message}`)
  })
  return { validator: () => validate, close }
}

export const refusalError = (url: string, { message }: ServiceUserRefused): OperatorError =>
  new OperatorError(`${message}. Check these settings and ${url}.`)
