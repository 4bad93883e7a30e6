import { createHmac } from 'node:crypto'

/** A record in the form in which it is linked and exported; times are UTC with microseconds, `detail` is JSON text. */
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

/** SQL of the columns of a ChainedRecord. */
export const CHAINED_COLUMNS = `seq, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') AS at, action, outcome, user_id,
  project_id, request_id, remote_address, target_type, target_id, detail::text AS detail`

/** What the first record is linked to. */
export const CHAIN_START = Buffer.alloc(32)

/**
 * The hash that links a record to the one before it. Without the key nobody can make a chain that fits, not even who writes to the
 * database.
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
