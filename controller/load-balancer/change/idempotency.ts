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

/** How long the answer to a request is kept for whoever sends it again. */
export const KEPT_HOURS = 24

export type KeyedRequest = {
  /** As readKey returned it. */
  key: string
  caller: Caller
  method: string
  /** Path with its query. */
  url: string
  body: unknown
}

/** Runs a handler, at most once for its key when a POST carries an Idempotency-Key. @throws ApiError 400, 409, 422 */
export async function answerRepeated(
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
 * Reads an Idempotency-Key header, which holds a quoted string or, as many clients write it, a bare word.
 * @throws ApiError 400
 */
export function readKey(header: string): string {
  const key = /^"(.*)"$/.exec(header)?.[1] ?? header
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw badRequest('Idempotency-Key should hold 1 to 255 printable ASCII characters.')
  }
  return key
}

/**
 * Carries a request out at most once for its key: whoever repeats it reads the first answer. Request and record are one transaction, so
 * a crash leaves neither or both, and what fails is not recorded.
 * @param handle carries it out within the transaction
 * @returns the answer, and whether it is that of an earlier request
 * @throws ApiError 409 while an earlier one is under way, 422 when the key stands for another request; whatever `handle` throws
 */
export async function answerOnce(
  database: Database,
  request: KeyedRequest,
  handle: (trx: Transaction) => Promise<Answer>,
): Promise<{ answer: Answer; repeated: boolean }> {
  const row = {
    project_id: request.caller.project?.id ?? '',
    user_id: request.caller.user.id,
    key: request.key,
  }
  const fingerprint = fingerprintOf(request)
  return inTransaction(database, async trx => {
    await holdKey(trx, row)
    const earlier = await maybeOne(
      trx,
      sql<{ request_sha256: string; status: number; body: string | null }>`
        SELECT request_sha256, status, body FROM repeated_request
         WHERE project_id = ${row.project_id} AND user_id = ${row.user_id} AND key = ${row.key}
           AND created_at > now() - ${KEPT_HOURS} * interval '1 hour'`,
    )
    if (earlier !== undefined) {
      if (earlier.request_sha256 !== fingerprint) {
        throw new ApiError(
          422,
          'This Idempotency-Key was used for another request; each request needs a key of its own.',
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
      sql`INSERT INTO repeated_request ${prepared(insertion([{ ...row, ...record }]))}
          ON CONFLICT (project_id, user_id, key) DO UPDATE
             SET request_sha256 = excluded.request_sha256, status = excluded.status, body = excluded.body,
                 created_at = excluded.created_at`,
    )
    return { answer, repeated: false }
  })
}

/** Until the transaction ends no other request with this key gets past here. */
async function holdKey(trx: Transaction, row: Readonly<Record<string, string>>): Promise<void> {
  const name = `Idempotency-Key ${JSON.stringify(Object.values(row))}`
  const { free } = await one(
    trx,
    sql<{ free: boolean }>`SELECT pg_try_advisory_xact_lock(hashtextextended(${name}, 0)) AS free`,
  )
  if (free) return
  throw conflict('A request with this Idempotency-Key is still under way; try again in a moment.')
}

const fingerprintOf = ({ method, url, body }: KeyedRequest): string =>
  createHash('sha256')
    .update(JSON.stringify([method, url, body ?? null]))
    .digest('hex')
