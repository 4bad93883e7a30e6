import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Knex } from 'knex'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { type ChainPlace, inUtc } from './chain.js'

/** The last record that retention removed; the chain continues after it. */
export type AuditAnchor = ChainPlace & {
  /** Time of the record; UTC with microseconds. */
  at: string
  /** Everything removed was older than this; UTC with microseconds. */
  cutoff: string
}

/** Message for an anchor that was not written with the audit key. */
export const FORGED_ANCHOR =
  'The anchor, after which the chain continues since retention removed records, was moved or changed, or the audit key is wrong.'

/** Only the key's owner can claim that retention removed records. */
function macOf(key: Buffer, { position, hash, at, cutoff }: AuditAnchor): Buffer {
  // A separate key, so that no link of the chain can pass for an anchor.
  const anchorKey = createHmac('sha256', key).update('anchor of the audit chain').digest()
  const fields = [position, hash.toString('hex'), at, cutoff]
  return createHmac('sha256', anchorKey).update(JSON.stringify(fields)).digest()
}

/**
 * The anchor of the chain; null if nothing was removed yet.
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

/** Advances the anchor. The database allows only existing, old records as anchors; see the migration. */
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
