import { existsSync } from 'node:fs'
import type { Context } from 'koa'
import type { Database } from '../database/connection.js'
import { answersWithin } from '../database/query.js'
import { ApiError } from './errors.js'

const TIME_LIMIT_MILLISECONDS = 3000

/**
 * `/healthcheck`: whether this process can serve, for load balancers and monitors; no token needed.
 * @param refreshSeconds how long the result of a database check is reused
 * @param disablingFile while this file exists, the answer is that this process cannot serve
 */
export function createHealthCheck(
  database: Database,
  refreshSeconds: number,
  disablingFile?: string,
): (ctx: Context) => Promise<void> {
  let last: { at: number; healthy: Promise<boolean> } = {
    at: Number.NEGATIVE_INFINITY,
    healthy: Promise.resolve(false),
  }
  const isHealthy = () => {
    const now = performance.now()
    if (now - last.at > refreshSeconds * 1000)
      last = { at: now, healthy: answersWithin(database, TIME_LIMIT_MILLISECONDS) }
    return last.healthy
  }
  return async ctx => {
    if (ctx.method !== 'GET' && ctx.method !== 'HEAD') {
      throw new ApiError(405, `The method ${ctx.method} is not allowed for this resource.`, { Allow: 'HEAD, GET' })
    }
    const isDisabled = disablingFile !== undefined && existsSync(disablingFile)
    const healthy = !isDisabled && (await isHealthy())
    const reason = isDisabled ? 'DISABLED BY FILE' : healthy ? 'OK' : 'The database cannot be reached.'
    ctx.body = ctx.accepts('text', 'json') === 'json' ? { detailed: false, reasons: [reason] } : reason
    ctx.status = healthy ? (ctx.method === 'HEAD' ? 204 : 200) : 503
  }
}
