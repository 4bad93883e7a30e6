import { randomBytes } from 'node:crypto'
import { execute, maybeOne, one } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { type Actor, auditInsert } from '../../audit/record.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../../crypto/keyring.js'
import { underActiveKey } from '../../crypto/under-active-key.js'
import { isId, newId } from '../../ids.js'
import type { Service } from '../../service.js'

const KEY_BYTES = 32
/** More than anybody tells apart; bounds the project's rows. */
const MAX_LIVE_KEYS = 1000

export const bindingKeyContext = (id: string): string => `ACME binding key ${id}`

/** SQL of a key's record (alias b) as JSON text, without the key itself; `base.url` is the root of the API. */
export const BINDING_KEY_JSON: Fragment = sql`json_build_object(
    'key_id', b.id, 'name', b.name, 'created', iso_time(b.created_at), 'creator_id', b.creator_id,
    'status', CASE WHEN b.revoked_at IS NULL THEN 'ACTIVE' ELSE 'REVOKED' END, 'revoked', iso_time(b.revoked_at),
    'accounts', (SELECT count(*) FROM acme_account a WHERE a.binding_key_id = b.id AND a.deactivated_at IS NULL))::text`

export type NewBindingKey = { projectId: string; creatorId: string; name: string | null }

/**
 * Makes a key with which ACME accounts of a project are created, with its audit record.
 * @returns its id and the key, which nobody is shown again; `full` if the project has too many
 * @throws CryptoUnavailable
 */
export async function createBindingKey(
  { database, keyring }: Service,
  { projectId, creatorId, name }: NewBindingKey,
  actor: Actor,
): Promise<{ id: string; key: Buffer } | 'full'> {
  const id = newId()
  const key = randomBytes(KEY_BYTES)
  const entry = { action: 'acme-key.create', outcome: 'success', targetType: 'acme-key', targetId: id } as const
  const outcome = await underActiveKey<'stored' | 'full'>(keyring, projectId, async () => {
    const sealed = await keyring.seal(projectId, key, bindingKeyContext(id))
    const { stored, active } = await one(
      database,
      sql<{ stored: boolean; active: boolean }>`
        WITH standing AS MATERIALIZED (SELECT id FROM project_key WHERE id = ${sealed.projectKeyId} AND active),
        made AS (
          INSERT INTO acme_binding_key (id, project_id, creator_id, name, project_key_id, sealed_key)
          SELECT ${id}::uuid, ${projectId}, ${creatorId}, ${name}, standing.id, ${sealed.ciphertext}::bytea FROM standing
           WHERE (SELECT count(*) FROM acme_binding_key WHERE project_id = ${projectId} AND revoked_at IS NULL) < ${MAX_LIVE_KEYS}
          RETURNING id),
        logged AS (${auditInsert(actor, entry, sql`made`)})
        SELECT EXISTS (SELECT FROM made) AS stored, EXISTS (SELECT FROM standing) AS active`,
    )
    if (stored) return 'stored'
    return active ? 'full' : 'key replaced'
  })
  return outcome === 'full' ? 'full' : { id, key }
}

/** Revokes a key, and with it every account it created. @returns whether the project has it, revoked or not */
export async function revokeBindingKey(
  { database }: Pick<Service, 'database'>,
  { id, projectId }: { id: string; projectId: string },
  actor: Actor,
): Promise<boolean> {
  const entry = { action: 'acme-key.revoke', outcome: 'success', targetType: 'acme-key', targetId: id } as const
  const { known } = await one(
    database,
    sql<{ known: boolean }>`
      WITH known AS (SELECT id FROM acme_binding_key WHERE id = ${id} AND project_id = ${projectId}),
      revoked AS (
        UPDATE acme_binding_key b SET revoked_at = now(), sealed_key = NULL, project_key_id = NULL FROM known
         WHERE b.id = known.id AND b.revoked_at IS NULL RETURNING b.id),
      logged AS (${auditInsert(actor, entry, sql`revoked`)})
      SELECT EXISTS (SELECT FROM known) AS known`,
  )
  return known
}

export type BindingKey = { id: string; projectId: string; key: Buffer }

/** The key that an account binding names; null if there is none, or it was revoked. @throws CryptoUnavailable */
export async function openBindingKey({ database, keyring }: Service, id: string): Promise<BindingKey | null> {
  if (!isId(id)) return null
  const found = await maybeOne(
    database,
    sql<KeyRow & { projectId: string; sealed: Buffer }>`
      SELECT b.project_id AS "projectId", b.sealed_key AS sealed, ${KEY_COLUMNS}
        FROM acme_binding_key b JOIN project_key k ON k.id = b.project_key_id WHERE b.id = ${id}`,
  )
  if (found === undefined) return null
  return {
    id,
    projectId: found.projectId,
    key: await keyring.open(sealedFrom(found.sealed, found), bindingKeyContext(id)),
  }
}

/** Removes a deleted project's keys with their accounts and orders. */
export async function eraseBindingKeys(trx: Service['database'], projectId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM acme_binding_key WHERE project_id = ${projectId}`)
}
