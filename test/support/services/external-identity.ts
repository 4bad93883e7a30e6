import type { ExternalIdentity } from '../../../controller/identity/external/external-identity.js'
import { createExternalValidator, type ExternalValidator } from '../../../controller/identity/external/validator.js'
import { createLog, type Logger } from '../../../controller/log/log.js'

/** The user `krater` of the default domain on the project `service`, at a Keystone, with settings to override. */
export const externalIdentityAt = (url: string, settings: Partial<ExternalIdentity> = {}): ExternalIdentity => ({
  url,
  credentials: {
    method: 'password',
    username: 'krater',
    password: 'krater-pw',
    userDomainName: 'Default',
    projectName: 'service',
    projectDomainName: 'Default',
  },
  security: { insecure: false },
  tokenCacheSeconds: 300,
  connectTimeoutSeconds: 2,
  requestTimeoutSeconds: 5,
  ...settings,
})

/** A validator, which logs nothing unless it gets a log. */
export const validatorAt = (
  url: string,
  settings: Partial<ExternalIdentity> = {},
  log: Logger = createLog('test', 'silent'),
): ExternalValidator => createExternalValidator(externalIdentityAt(url, settings), log)
