import Router from '@koa/router'
import type Koa from 'koa'
import type { Context } from 'koa'
import { createApplication } from '../http/application.js'
import { ApiError } from '../http/errors.js'
import { createHealthCheck } from '../http/health-check.js'
import { createPublicBase } from '../http/public-base.js'
import { createClientAddress, sourceOf } from '../http/trusted-proxies.js'
import { takeTurns } from '../http/turns.js'
import { authenticate, callerOf, placeOf } from '../identity/authenticate.js'
import type { TokenValidator } from '../identity/caller.js'
import type { Logger } from '../log/log.js'
import { aclRoutes } from './acls/routes.js'
import { createRefusalLog, type RefusalLog } from './audit/refusals.js'
import { CRL_PREFIX, CRL_ROUTE } from './certificate-authorities/crl-url.js'
import { publicRevocationList } from './certificate-authorities/public-crl.js'
import { certificateAuthorityRoutes } from './certificate-authorities/routes.js'
import { containerRoutes } from './containers/routes.js'
import { presentFault } from './faults.js'
import { MICROVERSION_HEADER, requestedMinor } from './microversion.js'
import { orderRoutes } from './orders/routes.js'
import { quotaRoutes } from './quotas/routes.js'
import { addRoutes, type Service, whoIs } from './routes.js'
import { secretStoreRoutes } from './secret-stores/routes.js'
import { secretRoutes } from './secrets/routes.js'
import { transportKeyRoutes } from './transport-keys/routes.js'
import { refuseUnrouted } from './unrouted.js'
import { buildDocument, rootDocument, versionDocument } from './versions.js'

export type KeyManagerApiOptions = Service & {
  validate: TokenValidator
  /** Public URL of identity (ending in /v3), which a 401 names. */
  identityUrl: string
  log: Logger
  /** To be flushed when the API stops. */
  refusals?: RefusalLog
}

/** Everything else is the root's own: documents that need no token, and nothing. */
const isVersioned = (path: string): boolean => path === '/v1' || path.startsWith('/v1/')

/** The key manager API v1. Key generation and certificates are left to the worker; everything else happens here. */
export function createKeyManagerApi(options: KeyManagerApiOptions): Koa {
  const { validate, identityUrl, log, config, database, refusals = createRefusalLog(database, log) } = options
  const app = createApplication({ name: 'key-manager', log, presentFault })
  const base = createPublicBase({ publicUrl: config.public_url, trustedProxies: config.trusted_proxies })
  const { healthcheck_refresh_interval: refreshSeconds, healthcheck_disable_by_file_path: disablingFile } = config
  const checkHealth = createHealthCheck(database, refreshSeconds, disablingFile)
  const baseOf = (ctx: Context) => base(ctx, '')
  const addressOf = createClientAddress(config.trusted_proxies)

  app.use(
    authenticate({
      validate,
      trustedProxies: config.trusted_proxies,
      identityUrl,
      serviceType: 'key-manager',
      isOpen: path => !isVersioned(path),
    }),
  )
  const isRevocationList = (ctx: Context) => ctx.path.startsWith(CRL_PREFIX)
  app.use(takeTurns(ctx => placeOf(ctx) ?? (isRevocationList(ctx) ? [`source ${sourceOf(addressOf(ctx))}`, ''] : null)))
  app.use(async (ctx, next) => {
    ctx.state.remoteAddress = addressOf(ctx)
    if (isVersioned(ctx.path)) ctx.state.who = whoIs(callerOf(ctx))
    ctx.vary(MICROVERSION_HEADER)
    ctx.state.minor = requestedMinor(ctx.get(MICROVERSION_HEADER))
    ctx.set(MICROVERSION_HEADER, `key-manager 1.${ctx.state.minor}`)
    // A shared cache knows nothing of our tokens.
    ctx.set('Cache-Control', 'no-store')
    if (isOlderPayloadRead(ctx)) ctx.path = `${ctx.path.replace(/\/$/, '')}/payload`
    if (ctx.path === '/healthcheck') return checkHealth(ctx)
    requireServedType(ctx)
    await next()
  })

  // Paths that differ only in case would else be routed as if they were versioned.
  const router = new Router({ sensitive: true })
  router.register('/', ['GET'], async ctx => {
    if (ctx.query.build !== undefined) {
      ctx.body = buildDocument()
    } else if (ctx.accepts('application/json', 'application/json-home') === 'application/json-home') {
      ctx.redirect(`${baseOf(ctx)}/v1/`)
    } else {
      ctx.body = rootDocument(baseOf(ctx), ctx.state.minor)
      ctx.status = 300
    }
  })
  router.register('/v1', ['GET'], async ctx => {
    ctx.body = versionDocument(baseOf(ctx), ctx.state.minor)
  })
  router.register(CRL_ROUTE, ['GET'], publicRevocationList(options))
  const families = [
    ...[secretRoutes, containerRoutes, aclRoutes, orderRoutes, quotaRoutes, transportKeyRoutes],
    ...[certificateAuthorityRoutes, secretStoreRoutes],
  ]
  for (const routesOf of families) addRoutes(router, routesOf(options), options, baseOf, refusals.record)
  // HEAD is no method of this API, though the router would answer it like GET.
  for (const layer of router.stack) layer.methods = layer.methods.filter(method => method !== 'HEAD')
  app.use(router.routes())
  app.use(ctx => {
    const layers: readonly { methods: readonly string[] }[] = ctx.matched ?? []
    return refuseUnrouted(database, ctx, new Set(layers.flatMap(({ methods }) => methods)))
  })
  return app
}

/** What Accept may say for a secret's record; asked for in any other type, a secret gives its payload, as it did before payloads had a path. */
const RECORD_TYPES: readonly (string | undefined)[] = [undefined, 'application/json', '*/*']

const isOlderPayloadRead = (ctx: Context): boolean =>
  ctx.method === 'GET' && /^\/v1\/secrets\/[^/]+\/?$/.test(ctx.path) && !RECORD_TYPES.includes(ctx.req.headers.accept)

/** @throws ApiError 406 when the caller takes no JSON, which is all there is but for payloads */
function requireServedType(ctx: Context): void {
  const accept = ctx.get('Accept').trim()
  if (accept === '' || PAYLOAD.test(ctx.path) || CERTIFICATES.test(ctx.path)) return
  const types = VERSION_PATHS.includes(ctx.path) ? ['application/json', 'application/json-home'] : ['application/json']
  if (ctx.accepts(types) === false) throw new ApiError(406, 'Only application/json is served.')
}

/** Where payloads come from and go to. */
const PAYLOAD = /^\/v1\/secrets\/[^/]+(\/payload)?\/?$/
/** Certificates and revocation lists have types of their own. */
const CERTIFICATES = /^\/(v1\/cas\/[^/]+\/(cacert|intermediates|crl)|crl\/[^/]+)\/?$/
const VERSION_PATHS: readonly string[] = ['/', '/v1', '/v1/']
