import { createHash } from 'node:crypto'
import type { Answer } from '../../api/answer.js'
import type { Call } from '../../api/call.js'
import type { Database } from '../../database/connection.js'
import { execute, maybeOne, one } from '../../database/query.js'
import { insertion, prepared, sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { ApiError, badRequest, conflict } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import { keepingTurn } from '../../process/turn.js'
import type { Service } from '../schema/service.js'

/** How long an answer is kept for repeats of its request. */
export const RETENTION_HOURS = 24

export type KeyedRequest = {
  /** The result of readKey. */
  key: string
  caller: Caller
  method: string
  /** Path with query. */
  url: string
  body: unknown
}

/** Runs a handler; for a POST with an Idempotency-Key, at most once per key. @throws ApiError 400, 409, 422 */
export async function answerIdempotently(
  service: Service,
  call: Call<Caller>,
  handle: (service: Service) => Promise<Answer>,
): Promise<Answer> {
  const { caller, path, queryString, route } = call
  const header = route.method === 'POST' ? call.header('Idempotency-Key') : ''
  if (header === '') return handle(service)
  const request = { key: readKey(header), caller, method: route.method, url: `${path}?${queryString}` }
  const { answer, repeated } = await answerOnce(service.database, { ...request, body: await call.json() }, trx =>
    keepingTurn(() => handle({ ...service, database: trx })),
  )
  return repeated ? { ...answer, headers: { ...answer.headers, 'Idempotent-Replayed': 'true' } } : answer
}

/**
 * Reads an Idempotency-Key header: a quoted string or, as many clients send it, a bare word.
 * @throws ApiError 400
 */
export function readKey(header: string): string {
  const key = /^"(.*)"$/.exec(header)?.[1] ?? header
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw badRequest('Idempotency-Key must be 1 to 255 printable ASCII characters.')
  }
  return key
}

/**
 * Runs a request at most once per key; repeats get the first answer. The request and its record share one
 * transaction, so a crash leaves both or neither, and a failed request is not recorded.
 * @param handle runs the request within the transaction
 * @returns the answer, and whether it comes from an earlier request
 * @throws ApiError 409 while an earlier one is in progress, 422 when the key belongs to a different request;
 *   whatever `handle` throws
 */
export async function answerOnce(
  database: Database,
  request: KeyedRequest,
  handle: (trx: Transaction) => Promise<Answer>,
): Promise<{ answer: Answer; repeated: boolean }> {
  const keyColumns = {
    project_id: request.caller.project?.id ?? '',
    user_id: request.caller.user.id,
    key: request.key,
  }
  const fingerprint = fingerprintOf(request)
  return inTransaction(database, async trx => {
    await lockKey(trx, keyColumns)
    const earlier = await maybeOne(
      trx,
      sql<{ request_sha256: string; status: number; body: string | null }>`
        SELECT request_sha256, status, body FROM repeated_request
         WHERE project_id = ${keyColumns.project_id} AND user_id = ${keyColumns.user_id} AND key = ${keyColumns.key}
           AND created_at > now() - ${RETENTION_HOURS} * interval '1 hour'`,
    )
    if (earlier !== undefined) {
      if (earlier.request_sha256 !== fingerprint) {
        throw new ApiError(
          422,
          'This Idempotency-Key was used for a different request. Use a new key for each request.',
        )
      }
      const { status, body } = earlier
      return { answer: body === null ? { status } : { status, json: body }, repeated: true }
    }
    const answer = await handle(trx)
    const record = {
      request_sha256: fingerprint,
      status: answer.status,
      body: answer.json ?? null,
      created_at: sql`now()`,
    }
    await execute(
      trx,
      sql`INSERT INTO repeated_request ${prepared(insertion([{ ...keyColumns, ...record }]))}
          ON CONFLICT (project_id, user_id, key) DO UPDATE
             SET request_sha256 = excluded.request_sha256, status = excluded.status, body = excluded.body,
                 created_at = excluded.created_at`,
    )
    return { answer, repeated: false }
  })
}

/** Locks a key until the transaction ends. @throws ApiError 409 when another request holds it */
async function lockKey(trx: Transaction, keyColumns: Readonly<Record<string, string>>): Promise<void> {
  const name = `Idempotency-Key ${JSON.stringify(Object.values(keyColumns))}`
  const { free } = await one(
    trx,
    sql<{ free: boolean }>`SELECT pg_try_advisory_xact_lock(hashtextextended(${name}, 0)) AS free`,
  )
  if (free) return
  throw conflict('A request with this Idempotency-Key is still in progress. Try again later.')
}

const fingerprintOf = ({ method, url, body }: KeyedRequest): string =>
  createHash('sha256')
    .update(JSON.stringify([method, url, body ?? null]))
    .digest('hex')
