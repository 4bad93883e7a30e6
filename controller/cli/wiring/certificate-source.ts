import { createBarbicanSource } from '../../certificates/barbican/certificate-source.js'
import type { CertificateSource } from '../../certificates/certificate-source.js'
import { createKraterSource } from '../../certificates/krater/certificate-source.js'
import { INSPECTION_MILLISECONDS } from '../../inspection/checks.js'
import type { Logger } from '../../log/log.js'
import type { Instance } from './instance.js'
import { openKeyManagerAccess } from './key-manager-access.js'
import { loadBalancerUrl, serviceUrls } from './service-urls.js'

/**
 * Opens the source of load balancers' certificates. Sends nothing until the first certificate reference.
 * @throws ConfigurationError when load_balancer.key_manager_ca_file cannot be used
 */
export function openCertificateSource(instance: Instance, log: Logger): CertificateSource {
  const { config } = instance
  const { keyManager, serviceUser, close } = openKeyManagerAccess(instance, log)
  const source =
    config.load_balancer.key_manager_url === undefined
      ? createKraterSource({
          keyManager,
          loadBalancerUrl: id => loadBalancerUrl(serviceUrls(config).loadBalancer, id),
          log,
        })
      : createBarbicanSource({
          keyManager,
          serviceUser,
          inspector: { inspectionMilliseconds: INSPECTION_MILLISECONDS },
          log,
        })
  return {
    check: source.check,
    close: () => {
      source.close()
      close()
    },
  }
}
