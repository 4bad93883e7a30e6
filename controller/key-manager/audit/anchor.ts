import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Knex } from 'knex'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { type ChainPlace, inUtc } from './chain.js'

/** The last record that retention has removed: the chain goes on from it. */
export type AuditAnchor = ChainPlace & {
  /** When it was recorded; UTC with microseconds. */
  at: string
  /** What was older than this when it was removed; UTC with microseconds. */
  cutoff: string
}

/** What is said of an anchor that was not made with the audit key. */
export const FORGED_ANCHOR =
  'The anchor, from which the chain goes on after what retention removed, was moved or changed, or the audit key is another one.'

/** Without the key nobody can say that retention has removed anything. */
function macOf(key: Buffer, { position, hash, at, cutoff }: AuditAnchor): Buffer {
  // A key of its own: no link of the chain can stand for an anchor.
  const anchorKey = createHmac('sha256', key).update('anchor of the audit chain').digest()
  const fields = [position, hash.toString('hex'), at, cutoff]
  return createHmac('sha256', anchorKey).update(JSON.stringify(fields)).digest()
}

/**
 * The anchor of the chain; null when nothing was removed yet.
 * @param key 32 bytes
 */
export async function readAnchor(database: Knex, key: Buffer): Promise<AuditAnchor | 'forged' | null> {
  const found = await maybeOne(
    database,
    sql<AuditAnchor & { mac: Buffer }>`
      SELECT position, hash, mac, ${inUtc(sql`at`)} AS at, ${inUtc(sql`cutoff`)} AS cutoff FROM key_manager_audit.audit_anchor`,
  )
  if (found === undefined) return null
  const { mac, ...anchor } = found
  const expected = macOf(key, anchor)
  return mac.length === expected.length && timingSafeEqual(mac, expected) ? anchor : 'forged'
}

/** Moves the anchor on. The database takes it only to a record that is there and old; see the migration. */
export async function writeAnchor(database: Knex, key: Buffer, anchor: AuditAnchor): Promise<void> {
  const { position, hash, at, cutoff } = anchor
  await execute(
    database,
    sql`INSERT INTO key_manager_audit.audit_anchor (position, hash, at, cutoff, mac)
     VALUES (${position}, ${hash}, ${at}::timestamp AT TIME ZONE 'UTC', ${cutoff}::timestamp AT TIME ZONE 'UTC',
             ${macOf(key, anchor)})
     ON CONFLICT (id) DO UPDATE SET position = excluded.position, hash = excluded.hash, at = excluded.at,
       cutoff = excluded.cutoff, mac = excluded.mac`,
  )
}
