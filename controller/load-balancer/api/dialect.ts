import type { Context } from 'koa'
import type * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import type { Call as KernelCall, Location, PlainLocation } from '../../api/call.js'
import type { Described } from '../../api/described.js'
import type { Dialect } from '../../api/dialect.js'
import { PAGE_PATH } from '../../api/page/serve.js'
import { type ProtectedRoute, type Route, routesFor } from '../../api/route.js'
import { ApiError } from '../../http/errors.js'
import { createHealthCheck } from '../../http/health-check.js'
import { createAuthenticator, placeOfCaller, tokenIn } from '../../identity/authenticate.js'
import type { TokenValidator } from '../../identity/caller.js'
import type { ApiCaller } from '../change/check-references.js'
import { answerIdempotently } from '../change/idempotency.js'
import { presentFault, RoutingFault } from '../schema/faults.js'
import { readBody } from '../schema/input.js'
import { type Requester, type Right, requesterOf } from '../schema/rights.js'
import type { Service } from '../schema/service.js'
import { canonicalPath, withoutPrefix } from './paths.js'

/** Octavia's limit. */
const MAX_BODY_BYTES = 114_688

/** For a batch of members and for trees: 5,000 members with the longest name and twenty tags fit. */
export const MAX_TREE_BYTES = 4 * 1024 * 1024

export const HEALTH_CHECK_PATH = '/healthcheck'

/** The right that a route requires; some routes only need a token. */
export type RouteRight = Right | 'any token'

export type LoadBalancerRoute = Route<Service, Requester, RouteRight>

export type Call<Body = unknown> = KernelCall<Requester, Body>

/** @param right required by the route; the handler knows on which project */
export type Handler<Body = unknown> = (service: Service, call: Call<Body>, right: Right) => Promise<Answer>

export const { route: plainRoute, openRoute } = routesFor<Service, Requester, RouteRight>()

/** A route whose handler checks the right, because only the handler knows the object's project. */
export function route<Body>({
  handle,
  ...described
}: Described & { right: Right; request?: z.ZodType<Body>; handle: Handler<Body> }): ProtectedRoute<
  Service,
  Requester,
  RouteRight
> {
  return plainRoute<Body>({ ...described, handle: (service, call) => handle(service, call, described.right) })
}

/** The caller, for requests to other services on its behalf. */
export const apiCaller = (call: Call): ApiCaller => ({ caller: call.caller, token: tokenIn(name => call.header(name)) })

export type DialectOptions = Service & {
  validate: TokenValidator
  /** Public URL of the identity service (ending in /v3), for 401 responses. */
  identityUrl: string
}

/** Octavia's dialect: its errors and wording, path variants, and idempotent requests. */
export function loadBalancerDialect({
  validate,
  identityUrl,
  database,
  config,
}: DialectOptions): Dialect<Service, Requester, RouteRight> {
  const { trusted_proxies: trustedProxies, mount_prefix: prefix = null } = config
  const callerFor = createAuthenticator({ validate, trustedProxies, identityUrl, serviceType: 'load-balancer' })
  const checkHealth = createHealthCheck(database, config.healthcheck_refresh_interval)
  return {
    name: 'load-balancer',
    trustedProxies,
    publicUrl: config.public_url,
    caseSensitive: false,
    headIsGet: true,
    body: { maxBytes: MAX_BODY_BYTES },
    locate: (_ctx, plain) => locate(plain, prefix),
    authenticate: async (ctx, path) => requesterOf(await callerFor(ctx, path), config),
    hidesPath: path => path !== HEALTH_CHECK_PATH,
    placeOf: caller => caller && placeOfCaller(caller),
    admit: (ctx, path) => {
      if (path !== PAGE_PATH && !acceptsJson(ctx)) {
        throw new ApiError(406, 'Only content type application/json is available.')
      }
    },
    intercept: config.healthcheck_enabled ? { [HEALTH_CHECK_PATH]: checkHealth } : {},
    validate: readBody,
    run: answerIdempotently,
    routingError: (status, message) => new RoutingFault(status, message),
    presentFault,
  }
}

/** @param prefix under which a web server mounts the API; null if none */
function locate({ path, base }: PlainLocation, prefix: string | null): Location {
  const inside = prefix === null ? null : withoutPrefix(path, prefix)
  const written = inside ?? path
  return {
    path: canonicalPath(written),
    written,
    base: () => base(prefix === null || inside === null ? '' : prefix),
  }
}

/** An Accept header without any media type accepts everything. */
function acceptsJson(ctx: Context): boolean {
  const types = ctx.get('Accept').split(',')
  return !types.some(type => /^\s*[\w.+*-]+\/[\w.+*-]+\s*(;|$)/.test(type)) || ctx.accepts('application/json') !== false
}
