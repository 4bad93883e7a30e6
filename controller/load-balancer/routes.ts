import type Router from '@koa/router'
import type { Context } from 'koa'
import type { Configuration } from '../config/schema.js'
import type { Database } from '../database/connection.js'
import { readJson } from '../http/body.js'
import { callerOf } from '../identity/authenticate.js'
import type { Caller } from '../identity/caller.js'
import type { NetworkDriver } from '../network/driver.js'
import type { OfferedProvider } from './capabilities.js'
import { type Right, ROUTE_RIGHTS, type Route } from './rights.js'

/** Largest request body, as the peers' (oslo) default. */
const BODY_LIMIT = 114_688

/** What the handlers of this API work with. */
export type Service = {
  database: Database
  network: NetworkDriver
  providers: readonly OfferedProvider[]
  config: Configuration['load_balancer']
}

/** One authenticated request. */
export type Call = {
  caller: Caller
  /** The right that the route asks for; on which project, the handler knows. */
  right: Right
  params: Readonly<Record<string, string>>
  queryString: string
  /** As the client sees it, without the query. */
  url: string
  /** @throws ApiError 400, 413, 415 */
  readBody: () => Promise<unknown>
}

/** `json` is the text of the body; without it there is none. */
export type Answer = { status: number; json?: string }

export type Handler = (call: Call) => Promise<Answer>

export type Routes = Readonly<Partial<Record<Route, Handler>>>

export function addRoutes(router: Router, routes: Routes, publicUrl: (ctx: Context, path: string) => string): void {
  for (const [route, handle] of Object.entries(routes) as [Route, Handler][]) {
    const [method, path] = route.split(' ') as [string, string]
    router.register(path, [method], async ctx => {
      const answer = await handle({
        caller: callerOf(ctx),
        right: ROUTE_RIGHTS[route],
        params: ctx.params,
        queryString: ctx.querystring,
        url: publicUrl(ctx, ctx.originalUrl.split('?')[0] ?? ''),
        readBody: () => readJson(ctx, BODY_LIMIT),
      })
      ctx.body = answer.json ?? null
      ctx.status = answer.status
      if (answer.json !== undefined) ctx.type = 'application/json'
    })
  }
}

/** `{"<key>": <object>}` around an object that is JSON text already. */
export const wrapped = (key: string, json: string): string => `{${JSON.stringify(key)}:${json}}`
