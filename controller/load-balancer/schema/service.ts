import type { CertificateSource } from '../../certificates/certificate-source.js'
import type { Database } from '../../database/connection.js'
import type { NetworkDriver } from '../../network/driver.js'
import type { LoadBalancerSettings } from '../options.js'
import type { ProviderCapabilities } from './capabilities.js'

/** What the handlers of this API work with. */
export type Service = {
  database: Database
  network: NetworkDriver
  certificates: CertificateSource
  providers: readonly ProviderCapabilities[]
  /** What the operator set; rules take the part of it that they need. */
  config: LoadBalancerSettings
}
