import type Router from '@koa/router'
import type { Context } from 'koa'
import type { Answer } from '../../api/answer.js'
import { readJson } from '../../http/body.js'
import { callerOf, tokenOf } from '../../identity/authenticate.js'
import type { Caller } from '../../identity/caller.js'
import { keepingTurn } from '../../process/turn.js'
import { type Asked, askedOf } from '../change/events.js'
import { answerOnce, readKey } from '../change/idempotency.js'
import { type Right, ROUTE_RIGHTS, type Route, rolesThatCount } from '../schema/rights.js'
import type { Service } from '../schema/service.js'

/** Largest request body, as the peers' (oslo) default. */
export const BODY_LIMIT = 114_688

/** One authenticated request. */
export type Call = {
  caller: Caller
  /** The caller's, for requests to other services in its name. It must not be stored or logged. */
  token: string
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

export type Handler = (call: Call) => Promise<Answer>

export type Routes = Readonly<Partial<Record<Route, Handler>>>

/** The routes of one kind of object. They keep nothing of their own, so they can be made anew for one request's transaction. */
export type RoutesOf = (service: Service) => Routes

export function addRoutes(
  router: Router,
  routesOf: RoutesOf,
  service: Service,
  publicUrl: (ctx: Context) => string,
): void {
  for (const [route, handle] of Object.entries(routesOf(service)) as [Route, Handler][]) {
    const [method, path] = route.split(' ') as [string, string]
    router.register(path, [method], async ctx => {
      const call = callOf(ctx, route, service, publicUrl(ctx))
      const key = method === 'POST' ? ctx.get('Idempotency-Key') : ''
      const answer = key === '' ? await handle(call) : await handleOnce(ctx, key, call, { route, routesOf, service })
      ctx.body = answer.json ?? null
      ctx.status = answer.status
      if (answer.json !== undefined) ctx.type = 'application/json'
    })
  }
}

function callOf(ctx: Context, route: Route, { config }: Service, url: string): Call {
  const caller = rolesThatCount(callerOf(ctx), config)
  const { params, querystring: queryString } = ctx
  const requestId: string = ctx.state.requestId
  let body: unknown
  return {
    caller,
    token: tokenOf(ctx),
    right: ROUTE_RIGHTS[route],
    params,
    queryString,
    url,
    readBody: async () => {
      body = await readJson(ctx, BODY_LIMIT)
      return body
    },
    asked: madeId => askedOf({ route, params, queryString, body, caller, requestId, madeId: madeId ?? null }),
  }
}

type Keyed = { route: Route; routesOf: RoutesOf; service: Service }

async function handleOnce(ctx: Context, header: string, call: Call, { route, routesOf, service }: Keyed) {
  const key = readKey(header)
  const body = await call.readBody()
  const { answer, repeated } = await answerOnce(
    service.database,
    { key, caller: call.caller, method: ctx.method, url: `${ctx.path}?${call.queryString}`, body },
    trx => {
      const handle = routesOf({ ...service, database: trx })[route]
      if (handle === undefined) throw new Error(`${route} is not among its own routes`)
      return keepingTurn(() => handle({ ...call, readBody: async () => body }))
    },
  )
  if (repeated) ctx.set('Idempotent-Replayed', 'true')
  return answer
}
