import type Koa from 'koa'
import type { Routing } from '../../controller/http/router.js'

/** The routes that an API serves, as `GET /v1/secrets/:id`. */
export const servedBy = (app: Koa): string[] =>
  app.middleware.filter(isRouting).flatMap(({ served }) => served.map(({ method, path }) => `${method} ${path}`))

const isRouting = (middleware: Koa.Middleware): middleware is Routing => 'served' in middleware
