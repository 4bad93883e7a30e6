import type Router from '@koa/router'
import type { Context } from 'koa'
import type { Configuration } from '../config/schema.js'
import type { Database } from '../database/connection.js'
import { readJson } from '../http/body.js'
import { callerOf } from '../identity/authenticate.js'
import type { Caller } from '../identity/caller.js'
import type { NetworkDriver } from '../network/driver.js'
import type { OfferedProvider } from './capabilities.js'
import { type Asked, askedOf } from './events.js'
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
  /**
   * What this request asks for, for the history of the load balancer that it changes; to be called when the body was read.
   * @param madeId the id of the object that it makes
   */
  asked: (madeId?: string) => Asked
}

/** `json` is the text of the body; without it there is none. */
export type Answer = { status: number; json?: string }

export type Handler = (call: Call) => Promise<Answer>

export type Routes = Readonly<Partial<Record<Route, Handler>>>

export function addRoutes(router: Router, routes: Routes, publicUrl: (ctx: Context, path: string) => string): void {
  for (const [route, handle] of Object.entries(routes) as [Route, Handler][]) {
    const [method, path] = route.split(' ') as [string, string]
    router.register(path, [method], async ctx => {
      const caller = callerOf(ctx)
      const { params, querystring: queryString } = ctx
      const requestId: string = ctx.state.requestId
      let body: unknown
      const answer = await handle({
        caller,
        right: ROUTE_RIGHTS[route],
        params,
        queryString,
        url: publicUrl(ctx, ctx.originalUrl.split('?')[0] ?? ''),
        readBody: async () => {
          body = await readJson(ctx, BODY_LIMIT)
          return body
        },
        asked: madeId => askedOf({ route, params, queryString, body, caller, requestId, madeId: madeId ?? null }),
      })
      ctx.body = answer.json ?? null
      ctx.status = answer.status
      if (answer.json !== undefined) ctx.type = 'application/json'
    })
  }
}

/** `{"<key>": <object>}` around an object that is JSON text already. */
export const wrapped = (key: string, json: string): string => `{${JSON.stringify(key)}:${json}}`
