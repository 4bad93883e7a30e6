import { createHmac } from 'node:crypto'
import type { Knex } from 'knex'
import { many } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'

/** A record as it is linked. Times are UTC with microseconds; `detail` is JSON text. */
export type ChainedRecord = {
  seq: number
  at: string
  action: string
  outcome: string
  user_id: string | null
  project_id: string | null
  request_id: string | null
  remote_address: string | null
  target_type: string
  target_id: string | null
  detail: string | null
}

/** SQL: a time as text, in UTC with microseconds. */
export const inUtc = (time: Fragment): Fragment =>
  sql`to_char((${time}) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')`

/** The columns of a ChainedRecord. */
export const CHAINED_COLUMNS = sql`seq, ${inUtc(sql`at`)} AS at, action, outcome, user_id, project_id,
  request_id, remote_address, target_type, target_id, detail::text AS detail`

export type LinkedRecord = ChainedRecord & { position: number; hash: Buffer }

/** A position in the chain, which the next record links to. */
export type ChainPlace = { position: number; hash: Buffer }

/** What the first record links to. */
export const CHAIN_START: ChainPlace = { position: 0, hash: Buffer.alloc(32) }

/**
 * The hash that links a record to its predecessor. Only the key's owner can make a valid chain; write access
 * to the database is not enough.
 * @param key 32 bytes
 */
export function linkHash(key: Buffer, position: number, before: Buffer, record: ChainedRecord): Buffer {
  const fields = [
    position,
    record.seq,
    record.at,
    record.action,
    record.outcome,
    record.user_id,
    record.project_id,
    record.request_id,
    record.remote_address,
    record.target_type,
    record.target_id,
    record.detail,
  ]
  return createHmac('sha256', key).update(before).update(JSON.stringify(fields)).digest()
}

/** A sentence if the record does not follow `before` in the chain; null if it does. */
export function linkFault(key: Buffer, before: ChainPlace, record: LinkedRecord): string | null {
  const { position, hash, at, action } = record
  if (position !== before.position + 1) return `Record ${before.position + 1} of the chain is missing.`
  if (linkHash(key, position, before.hash, record).equals(hash)) return null
  return `Record ${position} (${at}, ${action}) was changed, or the audit key is wrong.`
}

const BATCH = 2000

/** The linked records after a position, in the order of the chain, read in batches. */
export async function* linkedRecords(database: Knex, after: number): AsyncGenerator<LinkedRecord> {
  for (let last = after; ; ) {
    const batch = await many(
      database,
      sql<LinkedRecord>`
        SELECT ${CHAINED_COLUMNS}, position, hash FROM key_manager_audit.audit_record
         WHERE position > ${last} ORDER BY position LIMIT ${BATCH}`,
    )
    yield* batch
    const final = batch.at(-1)
    if (final === undefined) return
    last = final.position
  }
}
