import type { Database } from '../../database/connection.js'
import { execute, many, one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { type AuditAnchor, FORGED_ANCHOR, readAnchor } from './anchor.js'
import { CHAIN_START, type ChainPlace, inUtc, linkedRecords, linkFault } from './chain.js'
import { type AuditHead, faultOfHead } from './head.js'

const BATCH = 2000

export type AuditVerdict = {
  /** Linked records that were found right, from the first that is kept on. */
  verified: number
  /** What the chain ends with; null when it is empty. */
  head: { position: number; hash: string; at: string } | null
  /** Records that have no link yet. */
  waiting: number
  /** The oldest of them; null when there is none. */
  waitingSince: string | null
  /** The first thing that is wrong, in words; null when the chain is whole. */
  fault: string | null
  /** What retention has removed, all older than `before` (UTC); null when it was nothing. */
  removed: { records: number; before: string } | null
}

/**
 * Computes the whole chain anew and compares: from its first record, or from the anchor that retention has left. It is the chain of one moment,
 * whatever is linked or removed meanwhile.
 * @param noted a position and hash that were noted earlier: when the chain no longer holds them, its end was cut off or all of it made anew
 * @param kept the end that is kept outside the database; null when none is
 */
export async function verifyAudit(
  database: Database,
  key: Buffer,
  noted: { position: number; hash: string } | null = null,
  kept: AuditHead | null = null,
): Promise<AuditVerdict> {
  return inTransaction(database, async trx => {
    await execute(trx, sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`)
    const found = await readAnchor(trx, key)
    const anchor = found === 'forged' ? null : found
    let end: ChainPlace & { at: string } = anchor ?? { ...CHAIN_START, at: '' }
    let fault = found === 'forged' ? FORGED_ANCHOR : await faultBefore(trx, end.position)
    let verified = 0
    const isNoted = () => noted?.position === end.position && noted.hash === end.hash.toString('hex')
    let notedIsThere = noted === null || isNoted()
    for await (const record of fault === null ? linkedRecords(trx, end.position) : []) {
      fault = linkFault(key, end, record)
      if (fault !== null) break
      end = record
      verified++
      notedIsThere ||= isNoted()
    }
    if (fault === null && kept !== null) fault = await faultOfHead(trx, kept, anchor)
    if (fault === null && noted !== null && !notedIsThere) fault = faultOfNoted(noted.position, anchor)
    const head = end.position === 0 ? null : { position: end.position, hash: end.hash.toString('hex'), at: end.at }
    const removed = anchor === null ? null : { records: anchor.position, before: anchor.cutoff }
    return { verified, head, ...(await unlinked(trx)), fault, removed }
  })
}

async function unlinked(trx: Transaction): Promise<Pick<AuditVerdict, 'waiting' | 'waitingSince'>> {
  return one(
    trx,
    sql<{ waiting: number; waitingSince: string | null }>`
      SELECT count(*) AS waiting, ${inUtc(sql`min(at)`)} AS "waitingSince" FROM key_manager_audit.audit_record
       WHERE position IS NULL`,
  )
}

/** Nothing stands before the place from which the chain goes on: such a record was put there, and no link tells whether it is true. */
async function faultBefore(trx: Transaction, start: number): Promise<string | null> {
  const { first } = await one(
    trx,
    sql<{ first: number | null }>`SELECT min(position) AS first FROM key_manager_audit.audit_record`,
  )
  if (first === null || first > start) return null
  return `Record ${first} was put before the beginning of the chain, which is record ${start + 1}.`
}

/** What cannot be compared any more is not taken for right. */
const faultOfNoted = (position: number, anchor: AuditAnchor | null): string =>
  position < (anchor?.position ?? 0)
    ? `Record ${position}, which was noted, was removed by retention, and cannot be compared any more: note a later one.`
    : `The chain does not hold record ${position} as it was noted.`

export type ExportFilter = { from: Date | null; until: Date | null; project: string | null }

/** Records as lines of JSON, in the order of their numbers, with their place in the chain when they have one. */
export async function* exportAudit(database: Database, { from, until, project }: ExportFilter): AsyncGenerator<string> {
  for (let last = 0; ; ) {
    const batch = await many(
      database,
      sql<{ seq: number; line: string }>`
       SELECT seq, json_build_object('seq', seq, 'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'action', action,
                'outcome', outcome, 'user_id', user_id, 'project_id', project_id, 'request_id', request_id,
                'remote_address', remote_address, 'target_type', target_type, 'target_id', target_id, 'detail', detail,
                'position', position, 'hash', encode(hash, 'hex'))::text AS line
         FROM key_manager_audit.audit_record
        WHERE seq > ${last}
          AND (${from}::timestamptz IS NULL OR at >= ${from}::timestamptz)
          AND (${until}::timestamptz IS NULL OR at < ${until}::timestamptz)
          AND (${project}::text IS NULL OR project_id = ${project}::text)
        ORDER BY seq LIMIT ${BATCH}`,
    )
    for (const { line } of batch) yield line
    const final = batch.at(-1)
    if (final === undefined) return
    last = final.seq
  }
}
