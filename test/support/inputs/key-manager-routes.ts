import { versionRoutes } from '../../../controller/key-manager/api/versions.js'
import { projectRoutes } from '../../../controller/key-manager/api.js'
import type { Operation } from '../../../controller/key-manager/rights.js'

/** Method and path, such as `GET /v1/secrets/:id`. */
export type Route = string

/** Every route that needs a token, with the right that it names. */
export const keyManagerRoutes: ReadonlyMap<Route, Operation> = new Map(
  [...versionRoutes, ...projectRoutes(true)].flatMap(route =>
    'right' in route ? [[`${route.method} ${route.path}`, route.right] as const] : [],
  ),
)
