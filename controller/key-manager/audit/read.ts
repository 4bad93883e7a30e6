import type { Database } from '../../database/connection.js'
import { type AuditAnchor, FORGED_ANCHOR, readAnchor } from './anchor.js'
import { CHAIN_START, CHAINED_COLUMNS, type ChainPlace, type LinkedRecord, linkFault } from './chain.js'

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
  /** What retention has removed, all older than `before` (UTC); left out when it was nothing. */
  removed?: { records: number; before: string }
}

/** The linked records after a position with their links, in the order of the chain, a batch at a time. */
async function* linkedRecords(database: Database, after: number): AsyncGenerator<LinkedRecord> {
  for (let last = after; ; ) {
    const { rows } = await database.raw(
      `SELECT ${CHAINED_COLUMNS}, position, hash FROM audit_record WHERE position > ? ORDER BY position LIMIT ?`,
      [last, BATCH],
    )
    const batch = rows as LinkedRecord[]
    yield* batch
    const final = batch.at(-1)
    if (final === undefined) return
    last = final.position
  }
}

/**
 * Computes the whole chain anew and compares: from its first record, or from the anchor that retention has left. Retention may go on meanwhile.
 * @param noted a position and hash that were noted earlier: when the chain no longer holds them, its end was cut off or all of it made anew
 */
export async function verifyAudit(
  database: Database,
  key: Buffer,
  noted: { position: number; hash: string } | null = null,
): Promise<AuditVerdict> {
  const first = await readAnchor(database, key)
  let anchor = first === 'forged' ? null : first
  let fault = first === 'forged' ? FORGED_ANCHOR : null
  let end: ChainPlace & { at: string } = anchor ?? { ...CHAIN_START, at: '' }
  let verified = 0
  const isNoted = () => noted?.position === end.position && noted.hash === end.hash.toString('hex')
  let notedIsThere = noted === null || isNoted()
  for await (const record of fault === null ? linkedRecords(database, end.position) : []) {
    if (record.position > end.position + 1) {
      const moved = await readAnchor(database, key)
      if (moved !== null && moved !== 'forged' && moved.position > end.position) {
        anchor = moved
        end = moved
      }
      if (record.position <= end.position) continue
    }
    fault = linkFault(key, end, record)
    if (fault !== null) break
    end = record
    verified++
    notedIsThere ||= isNoted()
  }
  if (fault === null && noted !== null && !notedIsThere) fault = faultOfNoted(noted.position, anchor)
  const { rows } = await database.raw(
    `SELECT count(*) AS waiting, min(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')) AS since
       FROM audit_record WHERE position IS NULL`,
  )
  const [{ waiting, since }] = rows as [{ waiting: number; since: string | null }]
  const head = end.position === 0 ? null : { position: end.position, hash: end.hash.toString('hex'), at: end.at }
  const removed = anchor === null ? {} : { removed: { records: anchor.position, before: anchor.cutoff } }
  return { verified, head, waiting, waitingSince: since, fault, ...removed }
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
    const { rows } = await database.raw(
      `SELECT seq, json_build_object('seq', seq, 'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'action', action,
                'outcome', outcome, 'user_id', user_id, 'project_id', project_id, 'request_id', request_id,
                'remote_address', remote_address, 'target_type', target_type, 'target_id', target_id, 'detail', detail,
                'position', position, 'hash', encode(hash, 'hex'))::text AS line
         FROM audit_record
        WHERE seq > ? AND (?::timestamptz IS NULL OR at >= ?::timestamptz) AND (?::timestamptz IS NULL OR at < ?::timestamptz)
          AND (?::text IS NULL OR project_id = ?::text)
        ORDER BY seq LIMIT ?`,
      [last, from, from, until, until, project, project, BATCH] as (string | number)[],
    )
    const batch = rows as { seq: number; line: string }[]
    for (const { line } of batch) yield line
    const final = batch.at(-1)
    if (final === undefined) return
    last = final.seq
  }
}
