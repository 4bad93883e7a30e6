import { randomUUID } from 'node:crypto'
import Koa from 'koa'
import { isDatabaseAway } from '../database/database-away.js'
import type { Logger } from '../log/log.js'
import { ApiError, FloodError } from './errors.js'
import { type Fault, titleOf } from './fault.js'
import { createFloodLog } from './flood-log.js'
import { createMalformedAnswer } from './malformed.js'
import { requireOneHost } from './public-base.js'

export type ApplicationOptions = {
  /** Name of the service in the log. */
  name: string
  log: Logger
  /** The body of an error answer, in this API's shape; `error` is the thrown value. */
  presentFault: (fault: Fault, error: unknown) => unknown
  /** Content-Type of error answers; by default JSON's. */
  faultType?: string
}

/**
 * A Koa application with what all APIs share: a request id on each answer (`x-openstack-request-id`), one
 * access-log line per request, and one mapping from errors to the API's fault shape. An unreachable database
 * gives 503. Any other unknown error is a bug: it is logged with its stack, and the caller sees only the
 * request id. A refusal is not a fault of ours: it has its access-log line only. Refusals of one flood share lines.
 */
export function createApplication({ name, log, presentFault, faultType }: ApplicationOptions): Koa {
  const app = new Koa()
  const logFlood = createFloodLog(log, { service: name })
  app.use(async (ctx, next) => {
    const requestId = `req-${randomUUID()}`
    const started = process.hrtime.bigint()
    ctx.state.requestId = requestId
    ctx.set('x-openstack-request-id', requestId)
    try {
      requireOneHost(ctx)
      rejectMalformedPath(ctx.path)
      await next()
      if (ctx.status === 404 && ctx.body === undefined) throw new ApiError(404, 'The resource could not be found.')
      if ((ctx.status === 405 || ctx.status === 501) && ctx.body === undefined) {
        throw new ApiError(405, `The method ${ctx.method} is not allowed for this resource.`)
      }
    } catch (error) {
      const fault = faultOf(error, requestId)
      if (error instanceof ApiError) ctx.set({ ...error.headers })
      ctx.status = fault.status
      ctx.body = presentFault(fault, error)
      if (faultType !== undefined) ctx.set('Content-Type', faultType)
      if (error instanceof FloodError) {
        logFlood(error.flood, `${error.flood}: ${error.message}`)
        return
      }
      if (fault.status === 503) {
        const summary = isDatabaseAway(error) ? 'The database cannot be reached' : fault.message
        const reason = error instanceof Error ? error.message : String(error)
        logFlood(summary, reason === summary ? reason : `${summary} (${reason})`)
      } else if (!(error instanceof ApiError)) log.error({ service: name, requestId, err: error }, fault.message)
    }
    const milliseconds = Number(process.hrtime.bigint() - started) / 1e6
    log.info(
      { service: name, requestId, method: ctx.method, path: ctx.path, status: ctx.status, milliseconds },
      'request',
    )
  })
  app.on('error', error => {
    if (isConnectionError(error)) log.info({ service: name, reason: error.message }, 'connection error')
    else log.error({ service: name, err: error }, 'The answer could not be sent')
  })
  app.on('malformed', createMalformedAnswer({ name, log, presentFault }))
  return app
}

/** Whether the client has gone: the system's codes have no underscore. Other errors are bugs, those of Node.js too. */
const isConnectionError = ({ code }: NodeJS.ErrnoException): boolean =>
  code !== undefined && (/^E[A-Z0-9]+$/.test(code) || code === 'ERR_STREAM_PREMATURE_CLOSE')

function faultOf(error: unknown, requestId: string): Fault {
  if (error instanceof ApiError) {
    return { status: error.status, title: titleOf(error.status), message: error.message, requestId }
  }
  if (isDatabaseAway(error)) {
    const message = 'The service is temporarily unavailable; try again in a moment.'
    return { status: 503, title: 'Service Unavailable', message, requestId }
  }
  return {
    status: 500,
    title: 'Internal Server Error',
    message: `An unexpected error occurred. Tell the operator the request id ${requestId}.`,
    requestId,
  }
}

/** @param path null when the request line holds an absolute URL without a path */
function rejectMalformedPath(path: string | null): void {
  if (path === null) throw new ApiError(400, 'The request has no path.')
  try {
    decodeURIComponent(path)
  } catch {
    throw new ApiError(400, 'The percent-encoding of the request path is invalid.')
  }
  if (path.includes('%00')) throw new ApiError(400, 'The request path contains a NUL character.')
}
