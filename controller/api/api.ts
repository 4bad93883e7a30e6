import type Koa from 'koa'
import { createApplication } from '../http/application.js'
import { createTurns, type Turns } from '../http/turns.js'
import type { Logger } from '../log/log.js'
import { descriptionRoutes } from './description/serve.js'
import type { Dialect } from './dialect.js'
import { Dispatcher } from './dispatcher.js'
import type { Route } from './route.js'
import type { OpenApi } from './schema.js'

/**
 * The API kernel: what identity, network, load balancer and key manager are made from. A service is put on it in four steps.
 *
 * 1. `dialect.ts` of the service holds what differs from the other APIs, as data where it can be: shape of faults, words of refused bodies,
 *    content types, microversions, who asks and whom a request counts for (`Dialect` in dialect.ts says what each entry means).
 * 2. `export const { route, openRoute } = routesFor<Service, Caller, Right>()` gives the service its two words for routes. A route is one
 *    value: method, path, right, schema of the body, form of the answer, a sentence for the description, and the handler.
 * 3. A handler is a function of the service's parts and of the call: `(service, call) => Promise<Answer>`. It reads from top to bottom:
 *    authorise what depends on the object, validate (`await call.body()`), query, present (`jsonAnswer`). It throws ApiError for whatever
 *    the client is to be told. Handlers keep nothing, so one can run on another database, such as a transaction.
 * 4. `api.ts` of the service gives dialect, routes, parts and description to `createApi`.
 *
 * `/openapi.json` and `/docs` follow from the routes. Modules that handlers use: `query.ts` (arguments), `paging.ts` (pages and links) and
 * `answer.ts`.
 */
export type ApiOptions<Service, Caller, Right> = {
  dialect: Dialect<Service, Caller, Right>
  routes: readonly Route<Service, Caller, Right>[]
  /** What the handlers work with. */
  service: Service
  log: Logger
  /** Makes the OpenAPI document from all routes when it is asked for. `path` is where it is routed: `/openapi.json` but where paths lose `.json`. */
  description: { path?: string; make: (routes: readonly Route<Service, Caller, Right>[]) => OpenApi }
  /** For a service that takes turns itself as well. */
  turns?: Turns
}

/**
 * An API from its dialect and its routes. Every request goes the same way: locate, find the route, authenticate, take a turn, admit,
 * authorise, handle, answer. The middleware carries `routes`, the table of all of them, for tests.
 */
export function createApi<Service, Caller, Right>(options: ApiOptions<Service, Caller, Right>): Koa {
  const { dialect, service, log, description, turns = createTurns() } = options
  const make = () => description.make(routes)
  const routes: Route<Service, Caller, Right>[] = [
    ...options.routes,
    ...descriptionRoutes<Service>({ ...description, make }),
  ]
  const dispatcher = new Dispatcher({ dialect, routes, service, turns })
  const app = createApplication({ name: dialect.name, log, presentFault: dialect.presentFault })
  app.use(Object.assign(dispatcher.middleware, { routes }))
  return app
}
