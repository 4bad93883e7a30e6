import Router from '@koa/router'
import type Koa from 'koa'
import type { Context } from 'koa'
import { createApplication } from '../http/application.js'
import { ApiError } from '../http/errors.js'
import { createHealthCheck } from '../http/health-check.js'
import { createPublicBase } from '../http/public-base.js'
import { takeTurns } from '../http/turns.js'
import { authenticate, placeOf } from '../identity/authenticate.js'
import type { TokenValidator } from '../identity/caller.js'
import type { Logger } from '../log/log.js'
import { amphoraRoutes } from './api/administration/amphorae.js'
import { availabilityZoneProfileRoutes } from './api/administration/availability-zone-profiles.js'
import { availabilityZoneRoutes } from './api/administration/availability-zones.js'
import { flavorProfileRoutes } from './api/administration/flavor-profiles.js'
import { flavorRoutes } from './api/administration/flavors.js'
import { providerRoutes } from './api/administration/providers.js'
import { quotaRoutes } from './api/administration/quotas.js'
import { healthMonitorRoutes } from './api/health-monitors.js'
import { historyRoutes } from './api/history.js'
import { l7PolicyRoutes } from './api/l7-policies.js'
import { l7RuleRoutes } from './api/l7-rules.js'
import { listenerRoutes } from './api/listeners.js'
import { loadBalancerRoutes } from './api/load-balancers.js'
import { memberRoutes } from './api/members.js'
import { canonicalPath, VERSION_NODE, withoutPrefix } from './api/paths.js'
import { poolRoutes } from './api/pools.js'
import { addRoutes } from './api/routes.js'
import { versionDocument } from './api/versions.js'
import { createDescription, DESCRIPTION_PATHS } from './description/serve.js'
import { presentFault, RoutingFault } from './schema/faults.js'
import type { Service } from './schema/service.js'

export type LoadBalancerApiOptions = Service & {
  validate: TokenValidator
  /** Public URL of identity (ending in /v3), which a 401 names. */
  identityUrl: string
  log: Logger
}

/** What needs no token. */
const OPEN_PATHS: ReadonlySet<string> = new Set(['/', '/healthcheck', ...Object.values(DESCRIPTION_PATHS)])

/** The load-balancing API v2. Everything it does to the world, it does by storing what is desired and waking the workers. */
export function createLoadBalancerApi(options: LoadBalancerApiOptions): Koa {
  const { validate, identityUrl, log, config } = options
  const app = createApplication({ name: 'load-balancer', log, presentFault })
  const isOpen = (path: string) => OPEN_PATHS.has(path)
  const description = createDescription()
  const checkHealth = createHealthCheck(options.database, config.healthcheck_refresh_interval)
  const prefix = config.mount_prefix ?? null
  const baseOf = createPublicBase({ publicUrl: config.public_url, trustedProxies: config.trusted_proxies })

  app.use(async (ctx, next) => {
    const inside = prefix === null ? null : withoutPrefix(ctx.path, prefix)
    ctx.state.mounted = inside === null ? '' : prefix
    ctx.state.asWritten = inside ?? ctx.path
    if (inside !== null) ctx.path = inside
    await next()
  })

  app.use(
    authenticate({
      validate,
      trustedProxies: config.trusted_proxies,
      identityUrl,
      serviceType: 'load-balancer',
      isOpen: path => isOpen(canonicalPath(path)),
    }),
  )
  app.use(takeTurns(placeOf))
  app.use(async (ctx, next) => {
    ctx.path = canonicalPath(ctx.path)
    if (ctx.path === '/healthcheck' && config.healthcheck_enabled) return checkHealth(ctx)
    if (ctx.path !== DESCRIPTION_PATHS.page && !acceptsJson(ctx))
      throw new ApiError(406, 'Only content type application/json is available.')
    await next()
  })

  const router = new Router()
  router.get('/', async ctx => {
    ctx.body = versionDocument(`${baseOf(ctx, ctx.state.mounted)}/`)
  })
  router.get(DESCRIPTION_PATHS.document, async ctx => description.document(ctx))
  router.get(DESCRIPTION_PATHS.page, async ctx => description.page(ctx))
  router.get(VERSION_NODE, async ctx => {
    ctx.body = '"v2"'
    ctx.type = 'application/json'
  })
  const publicUrl = (ctx: Context) => `${baseOf(ctx, ctx.state.mounted)}${ctx.state.asWritten}`
  const families = [
    historyRoutes,
    loadBalancerRoutes,
    listenerRoutes,
    poolRoutes,
    memberRoutes,
    healthMonitorRoutes,
    l7PolicyRoutes,
    l7RuleRoutes,
    amphoraRoutes,
    providerRoutes,
    quotaRoutes,
    flavorRoutes,
    flavorProfileRoutes,
    availabilityZoneRoutes,
    availabilityZoneProfileRoutes,
  ]
  for (const routesOf of families) addRoutes(router, routesOf, options, publicUrl)

  app.use(async (ctx, next) => {
    await next()
    if (ctx.body !== undefined && ctx.body !== null) return
    if (ctx.status === 404) throw new RoutingFault(404, 'The resource could not be found.')
    if (ctx.status === 405 || ctx.status === 501) {
      throw new RoutingFault(405, `The method ${ctx.method} is not allowed for this resource.`)
    }
  })
  app.use(router.routes())
  app.use(router.allowedMethods())
  return app
}

/** An Accept header that names no media type at all asks for nothing. */
function acceptsJson(ctx: Context): boolean {
  const types = ctx.get('Accept').split(',')
  return !types.some(type => /^\s*[\w.+*-]+\/[\w.+*-]+\s*(;|$)/.test(type)) || ctx.accepts('application/json') !== false
}
