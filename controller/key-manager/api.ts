import Router from '@koa/router'
import type Koa from 'koa'
import type { Context } from 'koa'
import { createApplication } from '../http/application.js'
import { ApiError } from '../http/errors.js'
import { createPublicBase } from '../http/public-base.js'
import { authenticate, callerOf } from '../identity/authenticate.js'
import type { TokenValidator } from '../identity/caller.js'
import type { Logger } from '../log/log.js'
import { aclRoutes } from './acls/routes.js'
import { containerRoutes } from './containers/routes.js'
import { presentFault } from './faults.js'
import { MICROVERSION_HEADER, requestedMinor } from './microversion.js'
import { quotaRoutes } from './quotas/routes.js'
import { addRoutes, type Service } from './routes.js'
import { secretRoutes } from './secrets/routes.js'
import { transportKeyRoutes } from './transport-keys/routes.js'
import { rootDocument, versionDocument } from './versions.js'

export type KeyManagerApiOptions = Service & {
  validate: TokenValidator
  /** Public URL of identity (ending in /v3), which a 401 names. */
  identityUrl: string
  log: Logger
}

const OPEN_PATHS: ReadonlySet<string> = new Set(['/', '/healthcheck'])

/** The key manager API v1. Key generation and certificates are left to the worker; everything else happens here. */
export function createKeyManagerApi(options: KeyManagerApiOptions): Koa {
  const { validate, identityUrl, log, config, database } = options
  const app = createApplication({ name: 'key-manager', log, presentFault })
  const base = createPublicBase({ publicUrl: config.public_url, trustedProxies: [] })
  const baseOf = (ctx: Context) => base(ctx, '')

  app.use(authenticate({ validate, identityUrl, serviceType: 'key-manager', isOpen: path => OPEN_PATHS.has(path) }))
  app.use(async (ctx, next) => {
    ctx.state.minor = requestedMinor(ctx.get(MICROVERSION_HEADER))
    ctx.set(MICROVERSION_HEADER, `key-manager 1.${ctx.state.minor}`)
    ctx.vary(MICROVERSION_HEADER)
    if (!servesOtherTypes(ctx.path) && !acceptsJson(ctx)) throw new ApiError(406, 'Only application/json is served.')
    // A GET route would answer HEAD as well.
    if (ctx.method === 'HEAD') throw new ApiError(405, 'The method HEAD is not allowed for this resource.')
    await next()
  })

  const router = new Router()
  router.get('/', async ctx => {
    ctx.body = rootDocument(baseOf(ctx), ctx.state.minor)
    ctx.status = 300
  })
  router.get('/healthcheck', async ctx => {
    await database.raw('SELECT 1')
    ctx.body = 'OK'
  })
  router.get('/v1', async ctx => {
    callerOf(ctx)
    ctx.body = versionDocument(baseOf(ctx), ctx.state.minor)
  })
  const families = [secretRoutes, containerRoutes, aclRoutes, quotaRoutes, transportKeyRoutes]
  for (const routesOf of families) addRoutes(router, routesOf(options), options, baseOf)
  app.use(router.routes())
  app.use(router.allowedMethods())
  return app
}

/** Payloads have types of their own; so has a secret asked for in the older way of reading payloads. */
const servesOtherTypes = (path: string): boolean =>
  path === '/' || path === '/healthcheck' || /^\/v1\/secrets\/[^/]+(\/payload)?\/?$/.test(path)

function acceptsJson(ctx: Context): boolean {
  const accept = ctx.get('Accept').trim()
  return accept === '' || ctx.accepts('application/json') !== false
}
