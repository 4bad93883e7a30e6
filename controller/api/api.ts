import type Koa from 'koa'
import { createApplication } from '../http/application.js'
import { createTurns, type Turns } from '../http/turns.js'
import type { Logger } from '../log/log.js'
import type { Dialect } from './dialect.js'
import { Dispatcher } from './dispatcher.js'
import { descriptionRoutes } from './page/serve.js'
import type { Route } from './route.js'
import type { OpenApi } from './schema.js'

/**
 * The API kernel on which the identity, network, load balancer and key manager APIs are built. A service uses
 * it in four steps:
 *
 * 1. The service's `dialect.ts` holds what differs from the other APIs, as data where possible: the shape of
 *    faults, the wording of refused bodies, content types, microversions, authentication and fair-queue lanes.
 *    See `Dialect`.
 * 2. `export const { route, openRoute } = routesFor<Service, Caller, Right>()` gives the service its two functions for
 *    defining routes. A route is one value: method, path, right, schemas of the body and the answer, a sentence for the
 *    description, and the handler.
 * 3. A handler is a function `(service, call) => Promise<Answer>`. It reads from top to bottom: authorise what
 *    depends on the object, validate (`await call.body()`), query, present (`jsonAnswer`). It throws ApiError
 *    for whatever the client should learn. Handlers keep no state, so one can run on another database, such as
 *    a transaction.
 * 4. The service's `api.ts` passes dialect, routes, service parts and description to `createApi`.
 *
 * The kernel generates `/openapi.json` and `/docs` from the routes. Handlers use the modules `query.ts` (arguments),
 * `paging.ts` (pages and links) and `answer.ts`.
 */
export type ApiOptions<Service, Caller, Right> = {
  dialect: Dialect<Service, Caller, Right>
  routes: readonly Route<Service, Caller, Right>[]
  /** Passed to every handler. */
  service: Service
  log: Logger
  /**
   * Builds the OpenAPI document from all routes on request. `path` differs from `/openapi.json` if the dialect
   * strips `.json`. Without it, the API serves no description: that of a protocol is its RFC, and the key channel has
   * only Krater's own programs as its clients.
   */
  description?: { path?: string; make: (routes: readonly Route<Service, Caller, Right>[]) => OpenApi }
  /** Set by a service that also takes turns itself. */
  turns?: Turns
}

/**
 * Creates an API from its dialect and its routes. Every request takes the same steps: locate, find the route,
 * authenticate, take a turn, admit, authorise, handle, answer. The middleware has a property `routes` for tests, the
 * table of all routes.
 */
export function createApi<Service, Caller, Right>(options: ApiOptions<Service, Caller, Right>): Koa {
  const { dialect, service, log, description, turns = createTurns() } = options
  const routes: Route<Service, Caller, Right>[] = [...options.routes]
  if (description !== undefined) {
    routes.push(...descriptionRoutes<Service>({ ...description, make: () => description.make(routes) }))
  }
  const dispatcher = new Dispatcher({ dialect, routes, service, turns })
  const { name, faultType, presentFault } = dialect
  const app = createApplication({ name, log, presentFault, ...(faultType !== undefined && { faultType }) })
  app.use(Object.assign(dispatcher.middleware, { routes }))
  return app
}
