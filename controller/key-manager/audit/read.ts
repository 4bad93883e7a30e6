import type { Database } from '../../database/connection.js'
import { CHAIN_START, CHAINED_COLUMNS, type ChainedRecord, linkHash } from './chain.js'

const BATCH = 2000

export type LinkedRecord = ChainedRecord & { position: number; hash: Buffer }

export type AuditVerdict = {
  /** Linked records that were found right, from the first on. */
  verified: number
  /** What the chain ends with; null when it is empty. */
  head: { position: number; hash: string; at: string } | null
  /** Records that have no link yet. */
  waiting: number
  /** The oldest of them; null when there is none. */
  waitingSince: string | null
  /** The first thing that is wrong, in words; null when the chain is whole. */
  fault: string | null
}

/** Every linked record with its link, in the order of the chain, a batch at a time. */
async function* linkedRecords(database: Database): AsyncGenerator<LinkedRecord> {
  for (let last = 0; ; ) {
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
 * Computes the whole chain anew and compares.
 * @param noted a position and hash that were noted earlier: when the chain no longer holds them, its end was cut off or all of it made anew
 */
export async function verifyAudit(
  database: Database,
  key: Buffer,
  noted: { position: number; hash: string } | null = null,
): Promise<AuditVerdict> {
  let before: Buffer = CHAIN_START
  let position = 0
  let at = ''
  let fault: string | null = null
  let notedIsThere = noted === null
  for await (const record of linkedRecords(database)) {
    if (record.position !== position + 1) {
      fault = `Record ${position + 1} of the chain is missing.`
      break
    }
    const hash = linkHash(key, record.position, before, record)
    if (!hash.equals(record.hash)) {
      fault = `Record ${record.position} (${record.at}, ${record.action}) is not what was recorded, or the audit key is another one.`
      break
    }
    before = hash
    position = record.position
    at = record.at
    if (noted?.position === position && noted.hash === hash.toString('hex')) notedIsThere = true
  }
  if (fault === null && !notedIsThere) fault = `The chain does not hold record ${noted?.position} as it was noted.`
  const { rows } = await database.raw(
    `SELECT count(*) AS waiting, min(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')) AS since
       FROM audit_record WHERE position IS NULL`,
  )
  const [{ waiting, since }] = rows as [{ waiting: number; since: string | null }]
  const head = position === 0 ? null : { position, hash: before.toString('hex'), at }
  return { verified: position, head, waiting, waitingSince: since, fault }
}

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
