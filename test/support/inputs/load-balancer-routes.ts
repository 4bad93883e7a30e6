import type { LoadBalancerRoute } from '../../../controller/load-balancer/api/dialect.js'
import { ROUTES } from '../../../controller/load-balancer/api.js'
import type { Right } from '../../../controller/load-balancer/schema/rights.js'

/** Method and path, such as `GET /lbaas/pools/:id`. */
export type Route = string

/** Every route that needs a right, by method and path. */
export const loadBalancerRoutes: ReadonlyMap<Route, LoadBalancerRoute & { right: Right }> = new Map(
  ROUTES.flatMap(route =>
    'open' in route || route.right === 'any token'
      ? []
      : [[`${route.method} ${route.path}`, { ...route, right: route.right }] as const],
  ),
)

/** @throws Error for a route that the API does not have */
export function rightOf(route: Route): Right {
  const found = loadBalancerRoutes.get(route)
  if (found === undefined) throw new Error(`There is no route ${route}`)
  return found.right
}
