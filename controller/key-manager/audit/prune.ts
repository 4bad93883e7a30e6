import type { Knex } from 'knex'
import { execute, many, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { FORGED_ANCHOR, readAnchor, writeAnchor } from './anchor.js'
import { CHAIN_START, CHAINED_COLUMNS, type ChainPlace, inUtc, type LinkedRecord, linkFault } from './chain.js'
import { lockChain } from './linker.js'
import { recordAudit } from './record.js'

export type AuditRetention = {
  /** How many whole days a record is kept; the database gives up none younger than 30. */
  days: number
  /** 32 bytes, with which the chain was made. */
  key: Buffer
}

/** The chain is not what it was: nothing is removed from it, so that what is left of it can be looked at. */
export class BrokenAuditChain extends Error {}

const BATCH = 1000

/** What is older is not kept. */
const cutoffOf = (days: number): Fragment => sql`now() - ${days} * interval '1 day'`

/**
 * Removes the beginning of the chain as far as its records are older than the retention, a thousand in a transaction. Each batch is checked first:
 * what somebody else took away or changed is not passed over. The removal is itself recorded.
 * @returns how many records there were
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

/** The next records after a place in the chain, as far as they are old. */
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
