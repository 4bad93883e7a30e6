import Router from '@koa/router'
import type Koa from 'koa'
import type { Context, Middleware } from 'koa'
import type { Database } from '../database/connection.js'
import { isUniqueViolation, sqlState } from '../database/transaction.js'
import { createApplication } from '../http/application.js'
import { readJson } from '../http/body.js'
import { ApiError, badRequest, conflict, forbidden } from '../http/errors.js'
import { createPublicBase } from '../http/public-base.js'
import { createClientAddress, sourceOf } from '../http/trusted-proxies.js'
import { createTurns, type Turns } from '../http/turns.js'
import type { Logger } from '../log/log.js'
import type { Place } from '../process/fair-queue.js'
import { locate, versionDocument } from './discovery.js'
import { isStorable, parse } from './json.js'
import { createLogins, type Logins } from './login/logins.js'
import { createTokenTurns, type TokenTurns } from './login/token-turns.js'
import type { IdentitySettings } from './options.js'
import type { Answer, Request, Route } from './request.js'
import { isAllowedBy } from './resources/access-rules.js'
import { allRoutes } from './routes.js'
import { authRequestSchema } from './tokens/auth-request.js'
import { issueToken, type TokenLimits } from './tokens/issue.js'
import { prove, unauthenticated } from './tokens/proof.js'
import { presentToken } from './tokens/routes.js'
import { findToken, purgeExpiredTokens, type StoredToken, tokenHash } from './tokens/store.js'

export type IdentityApiOptions = {
  database: Database
  config: { identity: IdentitySettings }
  log: Logger
  /** 32 bytes that encrypt what users keep under /v3/credentials. Without them that resource answers 501. */
  credentialKey?: Buffer
}

/** As large as Keystone takes them. */
const MOST_BODY_BYTES = 114_688

const PURGE_INTERVAL_MILLISECONDS = 60_000

/** The embedded identity service: Keystone's v3 API over our own tables. */
export function createIdentityApi({ database, config, log, credentialKey }: IdentityApiOptions): Koa {
  const app = createApplication({
    name: 'identity',
    log,
    presentFault: ({ status, title, message }) => ({ error: { code: status, message, title } }),
  })
  const router = new Router()
  const logins = createLogins(config.identity)
  const addressOf = createClientAddress(config.identity.trusted_proxies)
  const service = {
    database,
    logins,
    turns: createTurns(),
    tokenTurns: createTokenTurns(),
    sourceOf: (ctx: Context) => sourceOf(addressOf(ctx)),
  }
  const issue = tokenIssuer(service, config.identity, log)
  router.get('/', ctx => {
    const { base } = ctx.state
    ctx.status = 300
    ctx.set('Location', `${base}/v3/`)
    ctx.body = { versions: { values: [versionDocument(base)] } }
  })
  router.get('/v3', ctx => {
    ctx.body = { version: versionDocument(ctx.state.base) }
  })
  router.post('/v3/auth/tokens', async ctx => send(ctx, await issue(ctx)))
  for (const route of allRoutes({ credentialKey: credentialKey ?? null })) {
    router.register(`/v3${route.path}`, [route.method], async (ctx: Context) =>
      send(ctx, await answerRoute(route, service, ctx)),
    )
  }
  app.use(decorate(config.identity))
  app.use(router.routes())
  app.use(router.allowedMethods())
  return app
}

/** Finds where the request came to, and gives every answer the headers and errors that Keystone's have. */
function decorate({ public_url, trusted_proxies }: IdentitySettings): Middleware {
  const publicUrl = public_url === undefined ? null : new URL(public_url)
  const baseOf = createPublicBase({ publicUrl: undefined, trustedProxies: trusted_proxies })
  return async (ctx, next) => {
    const { base, path } = locate(publicUrl, baseOf(ctx, ''), ctx.path)
    ctx.state.base = base
    ctx.state.url = `${base}${path}${ctx.search}`
    ctx.path = path
    ctx.set('Vary', 'X-Auth-Token')
    for (const value of Object.values(ctx.query).flat()) {
      if (!isStorable(value ?? '')) throw badRequest('The query holds characters that cannot be stored.')
    }
    try {
      await next()
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) ctx.set('WWW-Authenticate', `Keystone uri="${base}/v3"`)
      if (isUniqueViolation(error)) throw conflict('Conflict occurred: such an object exists already.')
      if (sqlState(error) === '23503')
        throw conflict('Conflict occurred: an object that the request refers to was just removed.')
      throw error
    }
  }
}

/** What every operation works with. */
type Service = {
  database: Database
  logins: Logins
  turns: Turns
  tokenTurns: TokenTurns
  sourceOf: (ctx: Context) => string
}

/** POST /v3/auth/tokens, the one operation that needs no token. */
function tokenIssuer(service: Service, limits: TokenLimits, log: Logger): (ctx: Context) => Promise<Answer> {
  const { database, logins, turns, sourceOf } = service
  let lastPurge = 0
  return async ctx => {
    const source = sourceOf(ctx)
    const read = async () => parse(authRequestSchema, await readBody(ctx))
    const { auth } = await turns.take([`source ${source}`, String(ctx.socket.remotePort)], read)
    const proofs = await prove({ findToken: find(service, source), database, logins, source }, auth.identity)
    const issue = async () => {
      const { token, document } = await issueToken(database, proofs, auth.scope, limits)
      return { token, body: await presentToken({ database, query: queryOf(ctx) }, document) }
    }
    const { token, body } = await turns.take([`user ${proofs[0]?.userId}`, ''], issue)
    if (Date.now() - lastPurge > PURGE_INTERVAL_MILLISECONDS) {
      lastPurge = Date.now()
      // Whoever logs in at this moment does not wait for it.
      purgeExpiredTokens(database).catch((error: Error) =>
        log.warn({ service: 'identity' }, `Ended tokens were not purged: ${error.message}`),
      )
    }
    return { status: 201, body, headers: { 'X-Subject-Token': token } }
  }
}

async function answerRoute(route: Route, service: Service, ctx: Context): Promise<Answer> {
  const { database, logins, turns, sourceOf } = service
  const token = await identify(service, ctx)
  const params: Record<string, string> = ctx.params
  if (!Object.values(params).every(isStorable)) throw badRequest('The path holds characters that cannot be stored.')
  if (!route.allow(token.document, params)) {
    throw forbidden(`You are not authorized to perform the requested action: ${route.method} /v3${route.path}.`)
  }
  const request: Request = {
    database,
    logins,
    token,
    params,
    query: queryOf(ctx),
    header: name => ctx.get(name),
    source: sourceOf(ctx),
    read: async schema => parse(schema, await readBody(ctx)),
    base: ctx.state.base,
    url: ctx.state.url,
  }
  return turns.take(placeOf(token), () => route.answer(request))
}

const placeOf = ({ document }: StoredToken): Place => [`user ${document.user.id}`, '']

/** Looks a token up, by its text, in its turn. */
const find =
  ({ database, tokenTurns }: Service, source: string) =>
  (token: string): Promise<StoredToken | null> =>
    tokenTurns.check({ token, source }, () => findToken(database, tokenHash(token)), placeOf)

/** Who asks, by X-Auth-Token. @throws ApiError 401 */
async function identify(service: Service, ctx: Context): Promise<StoredToken> {
  const text = ctx.get('X-Auth-Token').trim()
  const token = text === '' ? null : await find(service, service.sourceOf(ctx))(text)
  const rules = token?.document.access_rules
  const line = { service: 'identity', method: ctx.method, path: ctx.path }
  if (token === null || (rules !== undefined && !isAllowedBy(rules, line))) throw unauthenticated()
  return token
}

async function readBody(ctx: Context): Promise<unknown> {
  try {
    return await readJson(ctx, MOST_BODY_BYTES)
  } catch (error) {
    // Keystone has no 415.
    if (error instanceof ApiError && error.status === 415) throw badRequest(error.message)
    throw error
  }
}

function queryOf(ctx: Context): (name: string) => string | undefined {
  return name => {
    const value = ctx.query[name]
    return Array.isArray(value) ? value[0] : value
  }
}

function send(ctx: Context, { status, body, headers = {} }: Answer): void {
  ctx.status = status
  ctx.set(headers)
  if (body !== undefined) ctx.body = body
  else if (status === 200) ctx.body = ''
}
