import type { CertificateSource } from '../../certificates/certificate-source.js'
import type { Database } from '../../database/connection.js'
import type { NetworkDriver } from '../../network/driver.js'
import type { LoadBalancerSettings } from '../options.js'
import type { ProviderCapabilities } from './capabilities.js'

/** Dependencies of the handlers of this API. */
export type Service = {
  database: Database
  network: NetworkDriver
  certificates: CertificateSource
  providers: readonly ProviderCapabilities[]
  /** The controller host that this is, if machines are made on it: it gets what is created here. Default: any host. */
  hostId?: string | null
  /** Settings of the operator. Each rule takes only those it needs. */
  config: LoadBalancerSettings
}
