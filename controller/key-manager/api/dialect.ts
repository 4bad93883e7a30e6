import type { Context } from 'koa'
import type { z } from 'zod'
import type { Answer } from '../../api/answer.js'
import type { Call as KernelCall, Location } from '../../api/call.js'
import type { Described } from '../../api/described.js'
import type { Dialect } from '../../api/dialect.js'
import { MicroversionError } from '../../api/microversion.js'
import { type ProtectedRoute, routesFor } from '../../api/route.js'
import type { Fault } from '../../http/application.js'
import { ApiError, forbidden } from '../../http/errors.js'
import { createHealthCheck } from '../../http/health-check.js'
import { createClientAddress, sourceOf } from '../../http/trusted-proxies.js'
import { createAuthenticator, placeOfCaller } from '../../identity/authenticate.js'
import type { Caller, TokenValidator } from '../../identity/caller.js'
import type { Place } from '../../process/fair-queue.js'
import type { Actor, AuditAction, AuditEntry } from '../audit/record.js'
import type { RecordRefusal } from '../audit/refusals.js'
import type { CaBackend } from '../certificate-authorities/ca-backend.js'
import { CRL_PREFIX } from '../certificate-authorities/crl-url.js'
import { CryptoUnavailable } from '../crypto/backend.js'
import { parseBody, trimmed } from '../input.js'
import type { KeyManagerSettings } from '../options.js'
import { NEEDS_TARGET, type Operation, type Requester, requireRight, type Target } from '../rights.js'
import type { Service } from '../service.js'
import { refuseUnrouted } from './unrouted.js'

/** The newest minor version of v1: 1.1 shows the consumers of secrets, 1.2 refuses to delete a secret that has some. */
export const NEWEST_MINOR = 2

/** What the handlers of this API work with. */
export type ApiService = Service & { config: KeyManagerSettings; caBackends: readonly CaBackend[] }

/** Requester asks, and whom the request counts for. */
export type ApiCaller = Requester & { place: Place }

/** One authenticated request within a project. */
export type Call<Body = unknown> = KernelCall<ApiCaller, Body>

/** @throws ApiError 403 when the caller may not do what the route does to this object */
export type AllowOn = (target: Target) => void

export type Handler<Body = unknown> = (service: ApiService, call: Call<Body>, allowOn: AllowOn) => Promise<Answer>

const kernel = routesFor<ApiService, ApiCaller, Operation>()

/** A route that needs a token. Rights that look at no object are checked before its handler runs; the others the handler checks with `allowOn`. */
export function route<Body>({
  handle,
  ...described
}: Described & { right: Operation; request?: z.ZodType<Body>; handle: Handler<Body> }): ProtectedRoute<
  ApiService,
  ApiCaller,
  Operation
> {
  const { right } = described
  return kernel.route<Body>({
    ...described,
    handle: (service, call) =>
      handle(service, call, target => requireRight(service.config.policy, right, call.caller, target)),
  })
}

export const { openRoute } = kernel

/** Requester acts in a request, for audit records. */
export const actorIn = ({ caller, requestId, address }: Call): Actor => ({
  userId: caller.userId,
  projectId: caller.projectId,
  requestId,
  remoteAddress: address,
})

export type DialectOptions = Service & {
  config: KeyManagerSettings
  validate: TokenValidator
  /** Public URL of identity (ending in /v3), which a 401 names. */
  identityUrl: string
  recordRefusal: RecordRefusal
}

/** The Key Manager API among ours: Barbican's errors and words, its microversions, and paths in which case counts. */
export function keyManagerDialect(options: DialectOptions): Dialect<ApiService, ApiCaller, Operation> {
  const { validate, identityUrl, config, database, recordRefusal } = options
  const { trusted_proxies: trustedProxies } = config
  const callerFor = createAuthenticator({ validate, trustedProxies, identityUrl, serviceType: 'key-manager' })
  const addressOf = createClientAddress(trustedProxies)
  const checkHealth = createHealthCheck(
    database,
    config.healthcheck_refresh_interval,
    config.healthcheck_disable_by_file_path,
  )
  return {
    name: 'key-manager',
    trustedProxies,
    publicUrl: config.public_url,
    // Paths that differ only in case would else be routed as if they were versioned.
    caseSensitive: true,
    headIsGet: false,
    microversions: { service: 'key-manager', newest: NEWEST_MINOR },
    body: {
      maxBytes: config.max_allowed_request_size_in_bytes,
      exactType: true,
      // 413 is kept for secrets that are too large.
      statuses: { 413: 400 },
      prepare: trimmed,
    },
    locate,
    authenticate: async (ctx, path) => askerOf(await callerFor(ctx, path)),
    hidesPath: isVersioned,
    placeOf: (asker, ctx) => {
      if (asker !== null) return asker.place
      return ctx.path.startsWith(CRL_PREFIX) ? [`source ${sourceOf(addressOf(ctx))}`, ''] : null
    },
    admit: (ctx, path) => {
      forbidCaching(ctx)
      requireServedType(ctx, path)
    },
    intercept: {
      '/healthcheck': ctx => {
        forbidCaching(ctx)
        return checkHealth(ctx)
      },
    },
    authorise: (service, call, right) => {
      if (!NEEDS_TARGET.has(right)) requireRight(service.config.policy, right, call.caller, null)
    },
    validate: (schema, value) => parseBody(schema, value, schema.meta()?.title ?? 'body'),
    refused: (_, call, right, error) => recordIfAudited(recordRefusal, call, AUDITED[right], error),
    unrouted: (service, ctx, routes) => refuseUnrouted(service.database, ctx, routes),
    translate: error => (error instanceof CryptoUnavailable ? asAnswered(error) : error),
    presentFault,
  }
}

/** Everything else is the root's own: documents that need no token, and nothing. */
const isVersioned = (path: string): boolean => path === '/v1' || path.startsWith('/v1/')

/** @throws ApiError 403 for a token without a project */
function askerOf(caller: Caller): ApiCaller {
  const { user, project, roles } = caller
  if (project === null) throw forbidden('The token must be scoped to a project.')
  return { userId: user.id, projectId: project.id, roles, place: placeOfCaller(caller) }
}

/** What Accept may say for a secret's record; asked for in any other type, a secret gives its payload, as it did before payloads had a path. */
const RECORD_TYPES: readonly (string | undefined)[] = [undefined, 'application/json', '*/*']

function locate(ctx: Context, plain: Location): Location {
  const isOlderPayloadRead =
    ctx.method === 'GET' &&
    !RECORD_TYPES.includes(ctx.req.headers.accept) &&
    /^\/v1\/secrets\/[^/]+\/?$/.test(plain.path)
  return isOlderPayloadRead ? { ...plain, path: `${plain.path.replace(/\/$/, '')}/payload` } : plain
}

/** A shared cache knows nothing of our tokens. */
const forbidCaching = (ctx: Context): void => ctx.set('Cache-Control', 'no-store')

/** @throws ApiError 406 when the caller takes no JSON, which is all there is but for payloads, certificates and the page of the description */
function requireServedType(ctx: Context, path: string): void {
  const accept = ctx.get('Accept').trim()
  if (accept === '' || PAYLOAD.test(path) || CERTIFICATES.test(path) || DESCRIPTION.test(path)) return
  const types = VERSION_PATHS.includes(path) ? ['application/json', 'application/json-home'] : ['application/json']
  if (ctx.accepts(types) === false) throw new ApiError(406, 'Only application/json is served.')
}

/** Where payloads come from and go to. */
const PAYLOAD = /^\/v1\/secrets\/[^/]+(\/payload)?\/?$/
/** Certificates and revocation lists have types of their own. */
const CERTIFICATES = /^\/(v1\/cas\/[^/]+\/(cacert|intermediates|crl)|crl\/[^/]+)\/?$/
const DESCRIPTION = /^\/docs\/?$/
const VERSION_PATHS: readonly string[] = ['/', '/v1', '/v1/']

type Audited = Pick<AuditEntry, 'targetType'> & { action: AuditAction }

/** Operations whose refusals are audited; what succeeds is recorded by the handler, in the statement that does it. */
const AUDITED: Readonly<Partial<Record<Operation, Audited>>> = {
  'secret payload': { action: 'secret.payload.read', targetType: 'secret' },
  'secret payload store': { action: 'secret.payload.store', targetType: 'secret' },
  'secret create': { action: 'secret.create', targetType: 'secret' },
  'secret delete': { action: 'secret.delete', targetType: 'secret' },
  'secret acl read': { action: 'secret.acl.read', targetType: 'secret' },
  'container acl read': { action: 'container.acl.read', targetType: 'container' },
  'secret acl write': { action: 'secret.acl.change', targetType: 'secret' },
  'container acl write': { action: 'container.acl.change', targetType: 'container' },
  'order create': { action: 'order.create', targetType: 'order' },
}

async function recordIfAudited(
  record: RecordRefusal,
  call: Call,
  audited: Audited | undefined,
  error: unknown,
): Promise<void> {
  const status = error instanceof ApiError ? error.status : 500
  // A request that cannot be understood, or asks for what does not exist, has done nothing.
  if (audited === undefined || (status !== 403 && status !== 409 && status < 500)) return
  const outcome = status === 403 ? 'denied' : 'failure'
  await record(actorIn(call), { ...audited, outcome, targetId: call.params.id ?? null, detail: { status } })
}

/** Clients are told no reason, but when to try again. */
function asAnswered(error: CryptoUnavailable): ApiError {
  const answered = new ApiError(
    503,
    'The crypto back end cannot be used at the moment; try again later.',
    error.headers,
  )
  answered.cause = error
  return answered
}

/** Errors as Barbican shapes them. A 401 carries the shape of Keystone's middleware beside it, as clients read the one or the other. */
export function presentFault({ status, title, message }: Fault, error: unknown): unknown {
  if (error instanceof MicroversionError) return { message, code: `${status} ${title}`, title }
  const fault = { code: status, title, description: status === 406 ? null : message }
  return status === 401 ? { ...fault, error: { code: status, title, message } } : fault
}
