import { createHmac, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { writePrivateFile } from '../../process/private-file.js'
import { type AuditAnchor, FORGED_ANCHOR, readAnchor } from './anchor.js'
import { CHAIN_START, type ChainPlace, inUtc, linkedRecords, linkFault } from './chain.js'

/**
 * The last known end of the chain, stored outside the database so that the owner of the database cannot roll
 * it back.
 */
export type AuditHead = ChainPlace & {
  /** Time of its record; UTC with microseconds. */
  at: string
}

const stored = z.strictObject({
  position: z.int().min(1),
  hash: z.hex().length(64),
  at: z.string(),
  mac: z.hex().length(64),
})

function macOf(key: Buffer, { position, hash, at }: AuditHead): Buffer {
  // A separate key, so that no link of the chain can pass for a head.
  const headKey = createHmac('sha256', key).update('head of the audit chain').digest()
  return createHmac('sha256', headKey)
    .update(JSON.stringify([position, hash.toString('hex'), at]))
    .digest()
}

/**
 * Reads the stored head.
 * @param key 32 bytes
 * @returns null if there is no such file, `forged` if it was not written with this key
 */
export function readHead(path: string, key: Buffer): AuditHead | 'forged' | null {
  const text = readOrNull(path)
  if (text === null) return null
  const parsed = stored.safeParse(parseOrNull(text))
  if (!parsed.success) return 'forged'
  const { position, hash, at, mac } = parsed.data
  const head = { position, hash: Buffer.from(hash, 'hex'), at }
  return timingSafeEqual(Buffer.from(mac, 'hex'), macOf(key, head)) ? head : 'forged'
}

/** Replaces the file atomically and durably. */
export function writeHead(path: string, key: Buffer, head: AuditHead): void {
  const { position, hash, at } = head
  const content = { position, hash: hash.toString('hex'), at, mac: macOf(key, head).toString('hex') }
  writePrivateFile(path, `${JSON.stringify(content)}\n`)
}

/** Message for a head that was not written with the audit key. */
export const forgedHead = (path: string): string => `The chain head in ${path} was changed, or the audit key is wrong.`

function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** A sentence if the chain does not contain a head that it should; null if it does. */
export async function headFault(database: Knex, head: AuditHead, anchor: AuditAnchor | null): Promise<string | null> {
  // Retention removed the head's record; only the key's owner can write such an anchor.
  if (anchor !== null && (anchor.position > head.position || isSamePlace(anchor, head))) return null
  const found = await maybeOne(
    database,
    sql<{ hash: Buffer | null; end: number | null; endAt: string | null }>`
     SELECT (SELECT hash FROM key_manager_audit.audit_record WHERE position = ${head.position}) AS hash,
            r.position AS end, ${inUtc(sql`r.at`)} AS "endAt"
       FROM (VALUES (1)) AS one LEFT JOIN key_manager_audit.audit_record r ON r.position = (SELECT max(position) FROM key_manager_audit.audit_record)`,
  )
  if (found?.hash?.equals(head.hash) === true) return null
  const was = `The chain head was record ${head.position} (${head.at} UTC)`
  if (found?.end == null) return `${was}, but the chain is now empty: all records were removed.`
  if (found.end < head.position) {
    return `${was}, but the chain now ends with record ${found.end} (${found.endAt} UTC): its end was removed, or the database was restored from a backup.`
  }
  return `${was}, but the chain now holds another record there: its end was removed, or the database was restored from a backup, and new records followed.`
}

const isSamePlace = (one: ChainPlace, other: ChainPlace): boolean =>
  one.position === other.position && one.hash.equals(other.hash)

/**
 * Checks every link from a head to the present end, in one snapshot of the database.
 * @param head null to start at the oldest remaining record
 * @returns the present end, null for an empty chain; or the fault, as a sentence
 */
export async function followChain(
  database: Database,
  key: Buffer,
  head: AuditHead | null,
): Promise<{ fault: null; end: AuditHead | null } | { fault: string }> {
  return inTransaction(database, async trx => {
    await execute(trx, sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`)
    const anchor = await readAnchor(trx, key)
    if (anchor === 'forged') return { fault: FORGED_ANCHOR }
    const missingHead = head === null ? null : await headFault(trx, head, anchor)
    if (missingHead !== null) return { fault: missingHead }
    let end: AuditHead | null = anchor !== null && anchor.position > (head?.position ?? 0) ? anchor : head
    for await (const record of linkedRecords(trx, end?.position ?? 0)) {
      const fault = linkFault(key, end ?? CHAIN_START, record)
      if (fault !== null) return { fault }
      end = record
    }
    return { fault: null, end: end === null ? null : { position: end.position, hash: end.hash, at: end.at } }
  })
}
