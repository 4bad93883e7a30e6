import type Koa from 'koa'
import { createApi } from '../api/api.js'
import type { Logger } from '../log/log.js'
import { amphoraRoutes } from './api/administration/amphorae.js'
import { availabilityZoneProfileRoutes } from './api/administration/availability-zone-profiles.js'
import { availabilityZoneRoutes } from './api/administration/availability-zones.js'
import { flavorProfileRoutes } from './api/administration/flavor-profiles.js'
import { flavorRoutes } from './api/administration/flavors.js'
import { providerRoutes } from './api/administration/providers.js'
import { quotaRoutes } from './api/administration/quotas.js'
import { DOCUMENT_PATH, loadBalancerDescription } from './api/description.js'
import { type DialectOptions, type LoadBalancerRoute, loadBalancerDialect } from './api/dialect.js'
import { healthMonitorRoutes } from './api/health-monitors.js'
import { l7PolicyRoutes } from './api/l7-policies.js'
import { l7RuleRoutes } from './api/l7-rules.js'
import { listenerRoutes } from './api/listeners.js'
import { loadBalancerRoutes } from './api/load-balancers.js'
import { memberRoutes } from './api/members.js'
import { certificateRoutes } from './api/observed/certificates.js'
import { eventRoutes } from './api/observed/events.js'
import { poolRoutes } from './api/pools.js'
import { versionRoutes } from './api/versions.js'

/** In the order of the API description. */
export const ROUTES: readonly LoadBalancerRoute[] = [
  ...versionRoutes,
  ...[...loadBalancerRoutes, ...eventRoutes, ...certificateRoutes, ...listenerRoutes, ...poolRoutes, ...memberRoutes],
  ...[...healthMonitorRoutes, ...l7PolicyRoutes, ...l7RuleRoutes],
  ...[...quotaRoutes, ...providerRoutes, ...flavorRoutes, ...flavorProfileRoutes],
  ...[...availabilityZoneRoutes, ...availabilityZoneProfileRoutes, ...amphoraRoutes],
]

export type LoadBalancerApiOptions = DialectOptions & { log: Logger }

/** The load balancing API v2. It stores the desired state and wakes the workers, which apply it. */
export function createLoadBalancerApi(options: LoadBalancerApiOptions): Koa {
  return createApi({
    dialect: loadBalancerDialect(options),
    routes: ROUTES,
    service: options,
    log: options.log,
    description: { path: DOCUMENT_PATH, make: routes => loadBalancerDescription(routes, options.config.policy) },
  })
}
