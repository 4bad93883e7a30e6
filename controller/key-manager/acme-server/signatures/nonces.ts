import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Database } from '../../../database/connection.js'
import { execute, maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../../crypto/keyring.js'
import { underActiveKey } from '../../crypto/under-active-key.js'
import { newId } from '../../ids.js'
import type { Service } from '../../service.js'

/** How long a nonce can be used. */
const LIFE_MS = 3_600_000
/** How far the clocks of two processes may differ. */
const SKEW_MS = 60_000

const TIME_BYTES = 6
const RANDOM_BYTES = 16
const MAC_BYTES = 16

/** A nonce: its time, randomness, and a MAC over both, so that nothing is stored until it is used. Pure. */
export function writeNonce(key: Buffer, now: number, random: Buffer): string {
  const head = Buffer.concat([Buffer.alloc(TIME_BYTES), random])
  head.writeUIntBE(now, 0, TIME_BYTES)
  return Buffer.concat([head, macOf(key, head)]).toString('base64url')
}

const macOf = (key: Buffer, head: Buffer): Buffer =>
  createHmac('sha256', key).update(head).digest().subarray(0, MAC_BYTES)

/** When a nonce was issued, in milliseconds; null if none of our processes issued it within its life. Pure. */
export function timeOfNonce(key: Buffer, text: string, now: number): number | null {
  const bytes = Buffer.from(text, 'base64url')
  if (bytes.length !== TIME_BYTES + RANDOM_BYTES + MAC_BYTES || bytes.toString('base64url') !== text) return null
  const head = bytes.subarray(0, -MAC_BYTES)
  if (!timingSafeEqual(bytes.subarray(-MAC_BYTES), macOf(key, head))) return null
  const time = head.readUIntBE(0, TIME_BYTES)
  return time <= now + SKEW_MS && time > now - LIFE_MS ? time : null
}

export type Nonces = {
  issue: () => Promise<string>
  /** Whether it is one of ours and not too old. It may have been used. */
  isCurrent: (nonce: string) => Promise<boolean>
  /** Uses a current nonce. @returns false if another request has used it, of whatever process */
  use: (nonce: string) => Promise<boolean>
}

/** Nonces of all key manager processes: they share a key, and the table of used nonces. */
export function createNonces(service: Pick<Service, 'database' | 'keyring'>): Nonces {
  let key: Promise<Buffer> | null = null
  const loadedKey = (): Promise<Buffer> => {
    key ??= loadKey(service).catch(error => {
      key = null
      throw error
    })
    return key
  }
  return {
    issue: async () => writeNonce(await loadedKey(), Date.now(), randomBytes(RANDOM_BYTES)),
    isCurrent: async nonce => timeOfNonce(await loadedKey(), nonce, Date.now()) !== null,
    use: async nonce => {
      const used = await execute(
        service.database,
        sql`INSERT INTO acme_used_nonce (nonce, expires_at)
            VALUES (${nonce}, now() + ${(LIFE_MS + 2 * SKEW_MS) / 1000} * interval '1 second') ON CONFLICT DO NOTHING`,
      )
      return used === 1
    },
  }
}

/** The encryption context of the sealed key. */
export const nonceKeyContext = (id: string): string => `ACME nonce key ${id}`

/** The key in the database; the first process makes it. It belongs to the service itself. */
async function loadKey({ database, keyring }: Pick<Service, 'database' | 'keyring'>): Promise<Buffer> {
  const known = await findKey(database)
  if (known !== undefined) return keyring.open(sealedFrom(known.sealed, known), nonceKeyContext(known.id))
  await underActiveKey<'stored'>(keyring, '', async () => {
    const id = newId()
    const { projectKeyId, ciphertext } = await keyring.seal('', randomBytes(32), nonceKeyContext(id))
    const active = await execute(
      database,
      sql`INSERT INTO acme_nonce_key (id, project_key_id, sealed_key)
          SELECT ${id}::uuid, k.id, ${ciphertext}::bytea FROM project_key k WHERE k.id = ${projectKeyId} AND k.active
          ON CONFLICT (single) DO UPDATE SET single = true`,
    )
    return active === 1 ? 'stored' : 'key replaced'
  })
  return loadKey({ database, keyring })
}

const findKey = (database: Database) =>
  maybeOne(
    database,
    sql<KeyRow & { id: string; sealed: Buffer }>`
      SELECT n.id, n.sealed_key AS sealed, ${KEY_COLUMNS}
        FROM acme_nonce_key n JOIN project_key k ON k.id = n.project_key_id`,
  )
