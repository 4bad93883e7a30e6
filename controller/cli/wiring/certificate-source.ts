import { createBarbicanSource } from '../../certificates/barbican/certificate-source.js'
import { createServiceUser } from '../../certificates/barbican/service-user.js'
import type { CertificateSource } from '../../certificates/certificate-source.js'
import { connectToKeystone } from '../../identity/external/connection.js'
import type { ServiceCredentials } from '../../identity/external/external-identity.js'
import { externalIdentity } from '../../identity/external/external-identity.js'
import { IdentityUnavailable } from '../../identity/external/identity-unavailable.js'
import { signInAtKeystone } from '../../identity/external/sign-in.js'
import { INSPECTION_MILLISECONDS } from '../../inspection/checks.js'
import type { Logger } from '../../log/log.js'
import { readPem } from '../../options/pem-file.js'
import { readPasswords } from '../state-directory/passwords.js'
import type { Instance } from './instance.js'
import { serviceUrls } from './service-urls.js'

/**
 * Opens the source of load balancers' certificates. Sends nothing until the first certificate reference.
 * @throws ConfigurationError when load_balancer.key_manager_ca_file cannot be used
 */
export function openCertificateSource({ directory, config }: Instance, log: Logger): CertificateSource {
  const { key_manager_url: url, key_manager_ca_file: caFile, key_manager_timeout: answerSeconds } = config.load_balancer
  const external = externalIdentity(config)
  const connection = connectToKeystone(
    external ?? {
      url: serviceUrls(config).identity,
      security: { insecure: false },
      connectTimeoutSeconds: config.identity.connect_timeout,
      requestTimeoutSeconds: config.identity.request_timeout,
    },
  )
  const signIn = async () => signInAtKeystone(connection, external?.credentials ?? ownCredentials(directory))
  const source = createBarbicanSource({
    keyManager: {
      url: url ?? serviceUrls(config).keyManager.replace(/\/+$/, ''),
      security: {
        insecure: false,
        ...(caFile !== undefined && { ca: readPem(caFile, 'load_balancer.key_manager_ca_file') }),
      },
      connectTimeoutSeconds: Math.min(answerSeconds, 5),
      answerSeconds,
    },
    serviceUser: createServiceUser(signIn, log),
    inspector: { inspectionMilliseconds: INSPECTION_MILLISECONDS },
    log,
  })
  return {
    check: source.check,
    close: () => {
      source.close()
      connection.close()
    },
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
