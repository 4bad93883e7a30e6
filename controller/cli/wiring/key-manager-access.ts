import type { KeyManagerClientOptions } from '../../certificates/barbican/key-manager-client.js'
import { createServiceUser, type ServiceUser } from '../../certificates/barbican/service-user.js'
import type { TransportSecurity } from '../../http/exchange.js'
import { type Connection, connectToKeystone } from '../../identity/external/connection.js'
import { externalIdentity, type ServiceCredentials } from '../../identity/external/external-identity.js'
import { IdentityUnavailable } from '../../identity/external/identity-unavailable.js'
import { signInAtKeystone } from '../../identity/external/sign-in.js'
import type { Logger } from '../../log/log.js'
import { readPem } from '../../options/pem-file.js'
import { trustedAuthorities } from '../api-tls/trust.js'
import { readPasswords } from '../state-directory/passwords.js'
import type { Instance } from './instance.js'
import { serviceUrls } from './service-urls.js'

/** How this process reaches the key manager of load balancers' certificates, and as whom. */
export type KeyManagerAccess = {
  keyManager: KeyManagerClientOptions
  serviceUser: ServiceUser
  /** The identity service at which the service user signs in. `url` ends in /v3. */
  identity: { url: string; security: TransportSecurity; connection: Connection }
  close: () => void
}

/** Sends nothing yet. @throws ConfigurationError when a file that a setting names cannot be used */
export function openKeyManagerAccess(instance: Instance, log: Logger): KeyManagerAccess {
  const { directory, config } = instance
  const { key_manager_url: url, key_manager_ca_file: caFile, key_manager_timeout: answerSeconds } = config.load_balancer
  const external = externalIdentity(config)
  const ownAuthorities = trustedAuthorities(instance)
  const identity = external ?? {
    url: serviceUrls(config).identity,
    security: { insecure: false, ...(ownAuthorities !== undefined && { ca: ownAuthorities }) },
    connectTimeoutSeconds: config.identity.connect_timeout,
    requestTimeoutSeconds: config.identity.request_timeout,
  }
  const connection = connectToKeystone(identity)
  const ca =
    caFile !== undefined
      ? readPem(caFile, 'load_balancer.key_manager_ca_file')
      : url === undefined
        ? ownAuthorities
        : undefined
  return {
    keyManager: {
      url: url ?? serviceUrls(config).keyManager.replace(/\/+$/, ''),
      security: { insecure: false, ...(ca !== undefined && { ca }) },
      connectTimeoutSeconds: Math.min(answerSeconds, 5),
      answerSeconds,
    },
    serviceUser: createServiceUser(
      async () => signInAtKeystone(connection, external?.credentials ?? ownCredentials(directory)),
      log,
    ),
    identity: { url: identity.url, security: identity.security, connection },
    close: connection.close,
  }
}

/** The service user that the first start creates for load balancers. @throws IdentityUnavailable before the first start */
function ownCredentials(directory: string): ServiceCredentials {
  const passwords = readPasswords(directory)
  if (passwords === null) throw new IdentityUnavailable(`${directory} holds no password for the user octavia`)
  return {
    method: 'password',
    username: 'octavia',
    password: passwords.octavia,
    userDomainName: 'Default',
    projectName: 'service',
    projectDomainName: 'Default',
  }
}
