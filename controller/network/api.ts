import type Koa from 'koa'
import { createApi } from '../api/api.js'
import type { Database } from '../database/connection.js'
import type { Logger } from '../log/log.js'
import { networkDescription } from './api/description.js'
import { type DialectOptions, networkDialect, type Service } from './api/dialect.js'
import { createNetworks, networkSource } from './api/networks.js'
import { createNoopResource } from './api/noop.js'
import { createPorts, portSource } from './api/ports.js'
import { createQuotas, noopQuotas } from './api/quotas.js'
import { computeRoutes } from './api/routes/compute.js'
import { otherRoutes } from './api/routes/other-collections.js'
import { quotaRoutes } from './api/routes/quotas.js'
import { resourceRoutes } from './api/routes/resources.js'
import { versionRoutes } from './api/routes/versions.js'
import { createSubnets, subnetSource } from './api/subnets.js'
import type { NetworkSettings } from './options.js'

export type NetworkApiOptions = DialectOptions & {
  /** Connected with the network service's role. The driver `noop` never queries it. */
  database: Database
  config: Pick<NetworkSettings, 'driver' | 'quota' | 'shared_addresses'>
  log: Logger
}

const routes = [
  ...versionRoutes,
  ...[networkSource, subnetSource, portSource].flatMap(resourceRoutes),
  ...quotaRoutes,
  ...otherRoutes,
  ...computeRoutes,
]

/** The subset of the Networking API v2.0 that load balancer clients need: networks, subnets and ports. */
export function createNetworkApi({ database, config, log, ...options }: NetworkApiOptions): Koa {
  const isNoop = config.driver === 'noop'
  const service: Service = {
    resources: isNoop
      ? {
          network: createNoopResource('network'),
          subnet: createNoopResource('subnet'),
          port: createNoopResource('port'),
        }
      : {
          network: createNetworks(database, config),
          subnet: createSubnets(database, config),
          port: createPorts(database, config),
        },
    quotas: isNoop ? noopQuotas : createQuotas(database),
    defaultLimits: config.quota,
  }
  const dialect = networkDialect(options)
  return createApi({ dialect, routes, service, log, description: { make: networkDescription } })
}
