import type { Database } from '../../database/connection.js'
import { execute, many, one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { type AuditAnchor, FORGED_ANCHOR, readAnchor } from './anchor.js'
import { CHAIN_START, type ChainPlace, inUtc, linkedRecords, linkFault } from './chain.js'
import { type AuditHead, headFault } from './head.js'

const BATCH = 2000

export type AuditVerdict = {
  /** Intact linked records, counted from the oldest remaining one. */
  verified: number
  /** The last verified record; null if the chain is empty. */
  head: { position: number; hash: string; at: string } | null
  /** Records without a link. */
  waiting: number
  /** Time of the oldest of them; null if there are none. */
  waitingSince: string | null
  /** The first fault, as a sentence; null if the chain is intact. */
  fault: string | null
  /** What retention removed, all older than `before` (UTC); null if nothing. */
  removed: { records: number; before: string } | null
}

/**
 * Recomputes and compares every link from the first record, or from the anchor after retention, in one
 * snapshot of the database.
 * @param noted a position and hash from an earlier check. If the chain does not contain them, its end was
 *   removed or the whole chain was rewritten.
 * @param stored the head stored outside the database; null if there is none
 */
export async function verifyAudit(
  database: Database,
  key: Buffer,
  noted: { position: number; hash: string } | null = null,
  stored: AuditHead | null = null,
): Promise<AuditVerdict> {
  return inTransaction(database, async trx => {
    await execute(trx, sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`)
    const found = await readAnchor(trx, key)
    const anchor = found === 'forged' ? null : found
    let end: ChainPlace & { at: string } = anchor ?? { ...CHAIN_START, at: '' }
    let fault = found === 'forged' ? FORGED_ANCHOR : await faultBeforeStart(trx, end.position)
    let verified = 0
    const isNoted = () => noted?.position === end.position && noted.hash === end.hash.toString('hex')
    let hasNoted = noted === null || isNoted()
    for await (const record of fault === null ? linkedRecords(trx, end.position) : []) {
      fault = linkFault(key, end, record)
      if (fault !== null) break
      end = record
      verified++
      hasNoted ||= isNoted()
    }
    if (fault === null && stored !== null) fault = await headFault(trx, stored, anchor)
    if (fault === null && noted !== null && !hasNoted) fault = notedFault(noted.position, anchor)
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

/** A record before the start of the chain was inserted there: no link vouches for it. */
async function faultBeforeStart(trx: Transaction, start: number): Promise<string | null> {
  const { first } = await one(
    trx,
    sql<{ first: number | null }>`SELECT min(position) AS first FROM key_manager_audit.audit_record`,
  )
  if (first === null || first > start) return null
  return `Record ${first} was inserted before the start of the chain, which is record ${start + 1}.`
}

/** A noted record that retention removed is a fault too, because it cannot be compared. */
const notedFault = (position: number, anchor: AuditAnchor | null): string =>
  position < (anchor?.position ?? 0)
    ? `Retention removed the noted record ${position}, so it cannot be compared. Note a later record.`
    : `The chain does not hold record ${position} as noted.`

export type ExportFilter = { from: Date | null; until: Date | null; project: string | null }

/** Records as lines of JSON, in the order of their numbers, with their position and hash once they are linked. */
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
