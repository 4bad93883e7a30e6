import type { Knex } from 'knex'
import { execute, many, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { FORGED_ANCHOR, readAnchor, writeAnchor } from './anchor.js'
import { CHAIN_START, CHAINED_COLUMNS, type ChainPlace, inUtc, type LinkedRecord, linkFault } from './chain.js'
import { lockChain } from './linker.js'
import { recordAudit } from './record.js'

export type AuditRetention = {
  /** Days to keep records; the database refuses to delete records younger than 30. */
  days: number
  /** The 32 bytes that the chain was made with. */
  key: Buffer
}

/** The chain is damaged. Nothing is removed from it, so that it can be examined. */
export class BrokenAuditChain extends Error {}

const BATCH = 1000

const cutoffOf = (days: number): Fragment => sql`now() - ${days} * interval '1 day'`

/**
 * Removes the records at the start of the chain that are older than the retention, 1000 per transaction.
 * Verifies each batch first, so that it does not hide a removal or change by somebody else. Records the
 * removal itself.
 * @returns how many records were removed
 * @throws BrokenAuditChain
 */
export async function pruneAudit(database: Knex, retention: AuditRetention, signal?: AbortSignal): Promise<number> {
  for (let removed = 0; ; ) {
    const batch = await inTransaction(database, trx => pruneBatch(trx, retention))
    removed += batch
    if (batch < BATCH || signal?.aborted === true) return removed
  }
}

/** How many records `pruneAudit` would remove now. */
export async function countPrunable(database: Knex, days: number): Promise<number> {
  const { count } = await one(
    database,
    sql<{ count: number }>`
     SELECT count(*) AS count FROM key_manager_audit.audit_record
      WHERE position > coalesce((SELECT position FROM key_manager_audit.audit_anchor), 0)
        AND position < coalesce((SELECT min(k.position) FROM key_manager_audit.audit_record k WHERE k.at >= ${cutoffOf(days)}), 9223372036854775807)`,
  )
  return count
}

async function pruneBatch(trx: Transaction, { days, key }: AuditRetention): Promise<number> {
  await lockChain(trx)
  const anchor = await readAnchor(trx, key)
  if (anchor === 'forged') throw new BrokenAuditChain(FORGED_ANCHOR)
  const from: ChainPlace = anchor ?? CHAIN_START
  const old = await oldRecords(trx, from.position, days)
  const [last, cutoff] = [old.at(-1), old[0]?.cutoff]
  if (last === undefined || cutoff === undefined) return 0
  let place = from
  for (const record of old) {
    const fault = linkFault(key, place, record)
    if (fault !== null) throw new BrokenAuditChain(fault)
    place = record
  }
  const { position, hash, at } = last
  await writeAnchor(trx, key, { position, hash, at, cutoff })
  await execute(
    trx,
    sql`DELETE FROM key_manager_audit.audit_record WHERE position > ${from.position} AND position <= ${position}`,
  )
  await recordAudit(
    trx,
    { userId: null, projectId: null, requestId: null, remoteAddress: null },
    {
      action: 'audit.prune',
      outcome: 'success',
      targetType: 'audit',
      targetId: null,
      detail: { records: old.length, position, hash: hash.toString('hex'), before: cutoff },
    },
  )
  return old.length
}

/** Old records right after a position in the chain. */
async function oldRecords(
  trx: Transaction,
  after: number,
  days: number,
): Promise<(LinkedRecord & { cutoff: string })[]> {
  const records = await many(
    trx,
    sql<LinkedRecord & { cutoff: string; isOld: boolean }>`
      SELECT ${CHAINED_COLUMNS}, position, hash, audit_record.at < ${cutoffOf(days)} AS "isOld",
             ${inUtc(cutoffOf(days))} AS cutoff
        FROM key_manager_audit.audit_record WHERE position > ${after} ORDER BY position LIMIT ${BATCH}`,
  )
  const firstKept = records.findIndex(({ isOld }) => !isOld)
  return firstKept === -1 ? records : records.slice(0, firstKept)
}
