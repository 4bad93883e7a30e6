import type { Context } from 'koa'
import type * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import type { Call as KernelCall, Location } from '../../api/call.js'
import type { Described } from '../../api/described.js'
import type { Dialect } from '../../api/dialect.js'
import { MicroversionError } from '../../api/microversion.js'
import { type ProtectedRoute, routesFor } from '../../api/route.js'
import { ApiError, forbidden } from '../../http/errors.js'
import type { Fault } from '../../http/fault.js'
import { createHealthCheck } from '../../http/health-check.js'
import { createClientAddress, sourceOf } from '../../http/trusted-proxies.js'
import { createAuthenticator, placeOfCaller } from '../../identity/authenticate.js'
import type { Caller, TokenValidator } from '../../identity/caller.js'
import type { Checks } from '../../inspection/checks.js'
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

/**
 * The newest minor version of v1: 1.1 shows the consumers of secrets, 1.2 refuses to delete a secret with
 * consumers.
 */
export const MAX_MINOR = 2

/** What the handlers of this API work with. */
export type ApiService = Service & { config: KeyManagerSettings; caBackends: readonly CaBackend[]; checks: Checks }

/** The caller, and its place in the queue of requests. */
export type ApiCaller = Requester & { place: Place }

/** One authenticated request within a project. */
export type Call<Body = unknown> = KernelCall<ApiCaller, Body>

/** @throws ApiError 403 when the caller may not do what the route does to this object */
export type AllowOn = (target: Target) => void

export type Handler<Body = unknown> = (service: ApiService, call: Call<Body>, allowOn: AllowOn) => Promise<Answer>

const kernel = routesFor<ApiService, ApiCaller, Operation>()

/**
 * A route that needs a token. Rights without an object are checked before the handler; the handler checks others by
 * `allowOn`.
 */
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

/** The actor of a request, for audit records. */
export const actorIn = ({ caller, requestId, address }: Call): Actor => ({
  userId: caller.userId,
  projectId: caller.projectId,
  requestId,
  remoteAddress: address,
})

export type DialectOptions = Service & {
  config: KeyManagerSettings
  validate: TokenValidator
  /** Public URL of the identity service, ending in /v3; named in a 401. */
  identityUrl: string
  recordRefusal: RecordRefusal
}

/** The dialect of the Key Manager API: Barbican's errors and microversions, and case-sensitive paths. */
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
    // Otherwise paths that differ only in case would be routed as if they were versioned.
    caseSensitive: true,
    headIsGet: false,
    microversions: { service: 'key-manager', newest: MAX_MINOR },
    body: {
      maxBytes: config.max_allowed_request_size_in_bytes,
      exactType: true,
      // 413 is reserved for secrets that are too large.
      statuses: { 413: 400 },
      prepare: trimmed,
    },
    locate,
    authenticate: async (ctx, path) => toApiCaller(await callerFor(ctx, path)),
    hidesPath: isVersioned,
    placeOf: (caller, ctx) => {
      if (caller !== null) return caller.place
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
    translate: error => (error instanceof CryptoUnavailable ? toApiError(error) : error),
    presentFault,
  }
}

/** All other paths are documents that need no token, or do not exist. */
const isVersioned = (path: string): boolean => path === '/v1' || path.startsWith('/v1/')

/** @throws ApiError 403 for a token without a project */
function toApiCaller(caller: Caller): ApiCaller {
  const { user, project, roles } = caller
  if (project === null) throw forbidden('The token has no project: ask for one that is scoped to a project.')
  return { userId: user.id, projectId: project.id, roles, place: placeOfCaller(caller) }
}

/** Accept headers that get a secret's record. Any other gets its payload, as before payloads had a path. */
const RECORD_TYPES: readonly (string | undefined)[] = [undefined, 'application/json', '*/*']

function locate(ctx: Context, plain: Location): Location {
  const isLegacyPayloadRead =
    ctx.method === 'GET' &&
    !RECORD_TYPES.includes(ctx.req.headers.accept) &&
    /^\/v1\/secrets\/[^/]+\/?$/.test(plain.path)
  return isLegacyPayloadRead ? { ...plain, path: `${plain.path.replace(/\/$/, '')}/payload` } : plain
}

/** A shared cache does not check tokens. */
const forbidCaching = (ctx: Context): void => ctx.set('Cache-Control', 'no-store')

/**
 * @throws ApiError 406 unless the caller accepts JSON; payloads, certificates and the description page have other
 *   types
 */
function requireServedType(ctx: Context, path: string): void {
  const accept = ctx.get('Accept').trim()
  if (accept === '' || PAYLOAD_PATH.test(path) || CERTIFICATE_PATH.test(path) || DESCRIPTION_PATH.test(path)) return
  const types = VERSION_PATHS.includes(path) ? ['application/json', 'application/json-home'] : ['application/json']
  if (ctx.accepts(types) === false) throw new ApiError(406, 'Only application/json is served.')
}

/** Paths that read or store payloads. */
const PAYLOAD_PATH = /^\/v1\/secrets\/[^/]+(\/payload)?\/?$/
/** Paths of certificates and revocation lists. */
const CERTIFICATE_PATH = /^\/(v1\/cas\/[^/]+\/(cacert|intermediates|crl)|crl\/[^/]+)\/?$/
const DESCRIPTION_PATH = /^\/docs\/?$/
const VERSION_PATHS: readonly string[] = ['/', '/v1', '/v1/']

type Audited = Pick<AuditEntry, 'targetType'> & { action: AuditAction }

/** Operations whose refusals are audited. The handler records a success in the statement that performs it. */
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
  // Malformed requests and requests for missing objects are not audited: they did nothing.
  if (audited === undefined || (status !== 403 && status !== 409 && status < 500)) return
  const outcome = status === 403 ? 'denied' : 'failure'
  await record(actorIn(call), { ...audited, outcome, targetId: call.params.id ?? null, detail: { status } })
}

/** Hides the reason from clients, but says when to retry. */
function toApiError(error: CryptoUnavailable): ApiError {
  const answered = new ApiError(503, 'The crypto back end is unavailable; try again later.', error.headers)
  answered.cause = error
  return answered
}

/** Errors in Barbican's format. A 401 also has the format of Keystone's middleware, as some clients read only that. */
export function presentFault({ status, title, message }: Fault, error: unknown): unknown {
  if (error instanceof MicroversionError) return { message, code: `${status} ${title}`, title }
  const fault = { code: status, title, description: status === 406 ? null : message }
  return status === 401 ? { ...fault, error: { code: status, title, message } } : fault
}
