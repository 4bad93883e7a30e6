import type Router from '@koa/router'
import type { Context } from 'koa'
import type { Database } from '../database/connection.js'
import { readBytes, readJson } from '../http/body.js'
import { ApiError, badRequest, forbidden } from '../http/errors.js'
import type { Caller } from '../identity/caller.js'
import type { Actor, AuditAction, AuditEntry } from './audit/record.js'
import type { RecordRefusal } from './audit/refusals.js'
import { CryptoUnavailable } from './crypto/backend.js'
import type { Keyring } from './crypto/keyring.js'
import { trimmed } from './input.js'
import type { KeyManagerSettings } from './options.js'
import {
  NEEDS_TARGET,
  type Operation,
  ROUTE_OPERATIONS,
  type Route,
  requireRight,
  type Target,
  type Who,
} from './rights.js'

/** What the handlers of this API work with. */
export type Service = {
  database: Database
  keyring: Keyring
  config: KeyManagerSettings
}

/** One authenticated request within a project. */
export type Call = {
  who: Who
  /** For audit records. */
  actor: Actor
  /** @throws ApiError 403 when the caller may not do what the route does to this object */
  allowOn: (target: Target) => void
  params: Readonly<Record<string, string>>
  query: URLSearchParams
  /** Of the microversion that is spoken. */
  minor: number
  /** URL of the root of this API as the client reaches it, without a slash at its end. */
  base: string
  header: (name: string) => string
  /** False when there is no such header at all. */
  hasHeader: (name: string) => boolean
  /** The body with all its strings trimmed. @throws ApiError 400, 415 */
  readJson: () => Promise<unknown>
  /** The same whatever Content-Type says, for bodies of DELETE. */
  readAnyJson: () => Promise<unknown>
  /** @throws ApiError 413 */
  readBytes: (limit: number) => Promise<Buffer>
}

/** `json` is the text of a JSON body; `bytes` another body, of the type that the headers name. Without either there is no body. */
export type Answer = { status: number; json?: string; bytes?: Buffer; headers?: Readonly<Record<string, string>> }

export type Handler = (call: Call) => Promise<Answer>

/** The routes of one kind of object. */
export type Routes = Readonly<Partial<Record<Route, Handler>>>

/** Routes whose refusals are audited; what succeeds is recorded by the handler, in the statement that does it. */
const AUDITED: Readonly<Partial<Record<Operation, Pick<AuditEntry, 'targetType'> & { action: AuditAction }>>> = {
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

export function addRoutes(
  router: Router,
  routes: Routes,
  { config }: Service,
  baseOf: (ctx: Context) => string,
  record: RecordRefusal,
): void {
  for (const [route, handle] of Object.entries(routes) as [Route, Handler][]) {
    const [method, path] = route.split(' ') as [string, string]
    const operation: Operation = ROUTE_OPERATIONS[route]
    const audited = AUDITED[operation]
    router.register(path, [method], async ctx => {
      const call = callOf(ctx, operation, config, baseOf(ctx))
      try {
        if (!NEEDS_TARGET.has(operation)) requireRight(config.policy, operation, call.who, null)
        send(ctx, await handle(call))
      } catch (thrown) {
        const error = asAnswered(thrown)
        if (audited !== undefined) await recordRefusal(record, call, audited, error)
        throw error
      }
    })
  }
}

function asAnswered(error: unknown): unknown {
  if (!(error instanceof CryptoUnavailable)) return error
  const away = new ApiError(503, 'The crypto back end cannot be used at the moment; try again later.')
  away.cause = error
  return away
}

function send(ctx: Context, { status, json, bytes, headers }: Answer): void {
  ctx.body = json ?? bytes ?? null
  ctx.status = status
  if (json !== undefined) ctx.type = 'application/json'
  if (headers !== undefined) ctx.set({ ...headers })
}

function callOf(ctx: Context, operation: Operation, config: Service['config'], base: string): Call {
  const who: Who = ctx.state.who
  const readAnyJson = async () => trimmed(await readWholeJson(ctx, config.max_allowed_request_size_in_bytes))
  return {
    who,
    actor: {
      userId: who.userId,
      projectId: who.projectId,
      requestId: ctx.state.requestId,
      remoteAddress: ctx.state.remoteAddress,
    },
    allowOn: target => requireRight(config.policy, operation, who, target),
    params: ctx.params,
    query: new URLSearchParams(ctx.querystring),
    minor: ctx.state.minor,
    base,
    header: name => ctx.get(name),
    hasHeader: name => ctx.req.headers[name.toLowerCase()] !== undefined,
    readJson: async () => {
      if (ctx.request.type !== 'application/json') {
        throw new ApiError(415, 'The Content-Type of the body must be application/json.')
      }
      return readAnyJson()
    },
    readAnyJson,
    readBytes: limit => readBytes(ctx, limit),
  }
}

/** @throws ApiError 400 also for a body that is too large: 413 is kept for secrets that are */
async function readWholeJson(ctx: Context, limit: number): Promise<unknown> {
  try {
    return await readJson(ctx, limit, { anyType: true })
  } catch (error) {
    throw error instanceof ApiError && error.status === 413 ? badRequest(error.message) : error
  }
}

/** @throws ApiError 403 for a token without a project */
export function whoIs({ user, project, roles }: Caller): Who {
  if (project === null) throw forbidden('The token must be scoped to a project.')
  return { userId: user.id, projectId: project.id, roles }
}

async function recordRefusal(
  record: RecordRefusal,
  { actor, params }: Call,
  audited: Pick<AuditEntry, 'targetType' | 'action'>,
  error: unknown,
): Promise<void> {
  const status = error instanceof ApiError ? error.status : 500
  // A request that cannot be understood, or asks for what does not exist, has done nothing.
  if (status !== 403 && status !== 409 && status < 500) return
  const outcome = status === 403 ? 'denied' : 'failure'
  await record(actor, { ...audited, outcome, targetId: params.id ?? null, detail: { status } })
}
