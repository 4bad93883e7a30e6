import type { Knex } from 'knex'
import { execute, maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { AcmeProblem } from './problem.js'

/** At most so many rows per hour, of which a request adds some at once: one by default. */
export type RateLimit = { perHour: number; added?: number; column?: Fragment }

/** Creates of one project run one after the other until the transaction ends, so that limits are exact. */
export async function lockProject(trx: Knex.Transaction, projectId: string): Promise<void> {
  await execute(trx, sql`INSERT INTO project (id) VALUES (${projectId}) ON CONFLICT DO NOTHING`)
  await execute(trx, sql`SELECT 1 FROM project WHERE id = ${projectId} FOR UPDATE`)
}

/**
 * Refuses more rows than the limit allows. Reads as many index entries as the limit has rows at most.
 * @param rows such as `acme_order WHERE project_id = ...`, with an index that ends with the column of the time
 * @param what names them in the message
 * @throws AcmeProblem rateLimited, with Retry-After until the oldest row that counts is an hour old
 */
export async function requireRate(
  trx: Knex,
  rows: Fragment,
  { perHour, added = 1, column = sql`created_at` }: RateLimit,
  what: string,
): Promise<void> {
  if (added > perHour) throw new AcmeProblem('rateLimited', `There may be at most ${perHour} ${what} per hour.`)
  const full = await maybeOne(
    trx,
    sql<{ seconds: number }>`
      SELECT extract(epoch FROM ${column} + interval '1 hour' - now())::float8 AS seconds
        FROM ${rows} AND ${column} > now() - interval '1 hour' ORDER BY ${column} DESC OFFSET ${perHour - added} LIMIT 1`,
  )
  if (full === undefined) return
  const retryAfter = String(Math.max(1, Math.ceil(full.seconds)))
  throw new AcmeProblem('rateLimited', `There may be at most ${perHour} ${what} per hour.`, {
    headers: { 'Retry-After': retryAfter },
  })
}
