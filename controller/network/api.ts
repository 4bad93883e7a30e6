import type Koa from 'koa'
import { createApi } from '../api/api.js'
import type { Database } from '../database/connection.js'
import type { Logger } from '../log/log.js'
import { networkDescription } from './api/description.js'
import { type DialectOptions, networkDialect, type Service } from './api/dialect.js'
import { createNetworks, networkSource } from './api/networks/networks.js'
import { createSubnets, subnetSource } from './api/networks/subnets.js'
import { changeableNoopResource, noopResource, noopRouterActions } from './api/noop.js'
import { portSource } from './api/ports/port-source.js'
import { createPorts } from './api/ports/ports.js'
import { createQuotas, noopQuotas } from './api/quotas.js'
import { createRouterActions } from './api/routers/actions.js'
import { createFloatingIps, floatingIpSource } from './api/routers/floating-ips.js'
import { routerSource } from './api/routers/router-source.js'
import { createRouters } from './api/routers/routers.js'
import { computeRoutes } from './api/routes/compute.js'
import { otherRoutes } from './api/routes/other-collections.js'
import { quotaRoutes } from './api/routes/quotas.js'
import { fixedResourceRoutes, resourceRoutes } from './api/routes/resources.js'
import { routerActionRoutes } from './api/routes/router-actions.js'
import { versionRoutes } from './api/routes/versions.js'
import { createGroups, groupSource } from './api/security-groups/groups.js'
import { createRules, ruleSource } from './api/security-groups/rules.js'
import type { NetworkSettings } from './options.js'

export type NetworkApiOptions = DialectOptions & {
  /** Connected with the network service's role. The driver `noop` never queries it. */
  database: Database
  config: Pick<NetworkSettings, 'driver' | 'quota' | 'shared_addresses' | 'physical_networks'>
  log: Logger
}

const routes = [
  ...versionRoutes,
  ...[networkSource, subnetSource, portSource, routerSource, floatingIpSource, groupSource].flatMap(resourceRoutes),
  ...fixedResourceRoutes(ruleSource),
  ...routerActionRoutes,
  ...quotaRoutes,
  ...otherRoutes,
  ...computeRoutes,
]

/** The subset of the Networking API v2.0 that load balancer clients need. */
export function createNetworkApi({ database, config, log, ...options }: NetworkApiOptions): Koa {
  const service = config.driver === 'noop' ? noopService(config) : storedService(database, config)
  const dialect = networkDialect(options)
  return createApi({ dialect, routes, service, log, description: { make: networkDescription } })
}

const noopService = ({ quota }: NetworkApiOptions['config']): Service => ({
  resources: {
    network: changeableNoopResource('network'),
    subnet: changeableNoopResource('subnet'),
    port: changeableNoopResource('port'),
    router: changeableNoopResource('router'),
    floatingip: changeableNoopResource('floatingip'),
    security_group: changeableNoopResource('security_group'),
    security_group_rule: noopResource('security_group_rule'),
  },
  routerActions: noopRouterActions,
  quotas: noopQuotas,
  defaultLimits: quota,
})

const storedService = (database: Database, config: NetworkApiOptions['config']): Service => ({
  resources: {
    network: createNetworks(database, config),
    subnet: createSubnets(database, config),
    port: createPorts(database, config),
    router: createRouters(database, config),
    floatingip: createFloatingIps(database, config),
    security_group: createGroups(database, config),
    security_group_rule: createRules(database, config),
  },
  routerActions: createRouterActions(database),
  quotas: createQuotas(database),
  defaultLimits: config.quota,
})
