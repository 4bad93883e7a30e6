import type { Database } from '../../../database/connection.js'
import { execute, maybeOne } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import type { Claim } from '../../../queue/claim.js'
import { auditInsert } from '../../audit/record.js'
import { actorOf } from '../order.js'
import type { Order, OrderOutcome } from '../outcome.js'

export type Failed = Extract<OrderOutcome, { kind: 'failed' }>

/** A postponed order. `seconds` null means a pause that grows with each retry: 1, 2, 4 ... 300 s. */
export type Later = Omit<Extract<OrderOutcome, { kind: 'later' }>, 'seconds'> & { seconds: number | null }

/** Barbican's own limits, which its clients expect. */
const MAX_CHARACTERS = { subStatus: 36, text: 255 } as const

/** Never splits a surrogate pair. Pure. */
const truncate = (text: string, length: number): string => [...text].slice(0, length).join('')

export const truncateSubStatus = (text: string): string => truncate(text, MAX_CHARACTERS.subStatus)
export const truncateMessage = (text: string): string => truncate(text, MAX_CHARACTERS.text)

/**
 * SQL: the claim still holds the order, which is unsettled. Makes a statement safe to repeat when its answer was
 * lost.
 */
export const isHeldBy = ({ id, fence }: Claim): Fragment =>
  sql`id = ${id} AND fence = ${fence} AND status = 'PROCESSING' AND deleted_at IS NULL`
const RELEASED = sql`lease_owner = NULL, lease_until = NULL`

/** Releases an order so that another worker can claim it at once. Fenced. */
export async function releaseOrder(database: Database, claim: Claim): Promise<void> {
  await execute(database, sql`UPDATE secret_order SET status = 'PENDING', ${RELEASED} WHERE ${isHeldBy(claim)}`)
}

/**
 * Postpones an order. Fenced.
 * @returns seconds until the retry; null when the claim was lost and nothing was written
 */
export async function postponeOrder(database: Database, claim: Claim, later: Later): Promise<number | null> {
  const settled = await maybeOne(
    database,
    sql<{ seconds: number }>`
     UPDATE secret_order SET status = 'PENDING', sub_status = ${truncateSubStatus(later.subStatus)},
            sub_status_message = ${truncateMessage(later.subStatusMessage)}, retries = retries + 1,
            retry_at = now() + coalesce(${later.seconds}::float8, least(300, 2 ^ least(retries, 20))) * interval '1 second',
            ${RELEASED}, updated_at = now()
      WHERE ${isHeldBy(claim)} RETURNING extract(epoch FROM retry_at - now())::float8 AS seconds`,
  )
  return settled?.seconds ?? null
}

/** Sets an order to ERROR and writes its audit record. Fenced. */
export async function recordFailure(
  database: Database,
  claim: Claim,
  order: Pick<Order, 'id' | 'creatorId' | 'projectId'>,
  { statusCode, reason, subStatus = 'Unknown' }: Failed,
): Promise<void> {
  const audit = auditInsert(
    actorOf(order),
    {
      action: 'order.fail',
      outcome: 'failure',
      targetType: 'order',
      targetId: order.id,
      detail: { status: statusCode },
    },
    sql`failed`,
  )
  await execute(
    database,
    sql`WITH failed AS (
       UPDATE secret_order SET status = 'ERROR', error_status_code = ${statusCode}, error_reason = ${truncateMessage(reason)},
              sub_status = ${truncateSubStatus(subStatus)}, sub_status_message = 'Unknown',
              sealed_passphrase = NULL, project_key_id = NULL, retry_at = NULL, ${RELEASED}, updated_at = now()
        WHERE ${isHeldBy(claim)} RETURNING id),
     logged AS (${audit}) SELECT 1`,
  )
}
