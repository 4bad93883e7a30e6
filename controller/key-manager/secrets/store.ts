import type { Knex } from 'knex'
import { one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { conflict } from '../../http/errors.js'
import { type Actor, auditInsert } from '../audit/record.js'
import type { Sealed } from '../crypto/keyring.js'
import { underActiveKey } from '../crypto/under-active-key.js'
import { missing, newId } from '../ids.js'
import { quotaReached } from '../rights.js'
import type { Service } from '../service.js'
import { LIVE, payloadContext } from './secret.js'

/** A secret to store; `payload` is null when it is uploaded later. */
export type SecretToStore = {
  projectId: string
  creatorId: string
  name: string | null
  secretType: string
  algorithm: string | null
  bitLength: number | null
  mode: string | null
  expiration: Date | null
  payload: { bytes: Buffer; contentType: string } | null
}

export const payloadExists = () => conflict('The secret already has a payload, which cannot be changed.')

/**
 * Stores a secret and its audit record in one statement.
 * @returns its id
 * @throws ApiError 403 when the project's quota of secrets is reached
 */
export async function storeSecret(
  { database, keyring, config }: Service,
  secret: SecretToStore,
  actor: Actor,
): Promise<string> {
  const id = newId()
  const { projectId, payload } = secret
  const outcome = await underActiveKey(keyring, projectId, async () => {
    const sealed = payload === null ? null : await keyring.seal(projectId, payload.bytes, payloadContext(id))
    return insertSecret(database, { id, secret, sealed, actor, limit: config.quota.secrets })
  })
  if (outcome === 'quota') throw quotaReached('secrets')
  return id
}

/**
 * Stores the payload of a secret without one, and the audit record, in one statement: of concurrent uploads one
 * succeeds.
 * @throws ApiError 409 when it has a payload, 404 when it was deleted
 */
export async function storePayload(
  { database, keyring }: Service,
  { id, projectId }: { id: string; projectId: string },
  { bytes, contentType }: { bytes: Buffer; contentType: string },
  actor: Actor,
): Promise<void> {
  const outcome = await underActiveKey(keyring, projectId, async () => {
    const sealed = await keyring.seal(projectId, bytes, payloadContext(id))
    return updatePayload(database, { id, contentType, sealed, actor })
  })
  if (outcome === 'has payload') throw payloadExists()
  if (outcome === 'gone') throw missing('Secret')
}

type Update = { id: string; contentType: string; sealed: Sealed; actor: Actor }

async function updatePayload(
  database: Knex,
  { id, contentType, sealed, actor }: Update,
): Promise<'stored' | 'has payload' | 'gone' | 'key replaced'> {
  const audit = auditInsert(
    actor,
    { action: 'secret.payload.store', outcome: 'success', targetType: 'secret', targetId: id },
    sql`stored`,
  )
  const outcome = await one(
    database,
    sql<{ keyActive: boolean; stored: boolean; live: boolean }>`
     WITH standing AS MATERIALIZED (SELECT id FROM project_key WHERE id = ${sealed.projectKeyId}::uuid AND active),
     stored AS (
       UPDATE secret s SET content_type = ${contentType}, project_key_id = standing.id, ciphertext = ${sealed.ciphertext}::bytea, updated_at = clock_timestamp()
         FROM standing WHERE s.id = ${id} AND s.content_type IS NULL AND ${LIVE} RETURNING s.id),
     logged AS (${audit})
     SELECT EXISTS (SELECT 1 FROM standing) AS "keyActive", EXISTS (SELECT 1 FROM stored) AS stored,
            EXISTS (SELECT 1 FROM secret s WHERE s.id = ${id} AND ${LIVE}) AS live`,
  )
  if (outcome.stored) return 'stored'
  if (!outcome.keyActive) return 'key replaced'
  return outcome.live ? 'has payload' : 'gone'
}

type Insert = { id: string; secret: SecretToStore; sealed: Sealed | null; actor: Actor; limit: number }

async function insertSecret(
  database: Knex,
  { id, secret, sealed, actor, limit }: Insert,
): Promise<'stored' | 'quota' | 'key replaced'> {
  const audit = auditInsert(
    actor,
    { action: 'secret.create', outcome: 'success', targetType: 'secret', targetId: id },
    sql`made`,
  )
  const key = sealed?.projectKeyId ?? null
  const { projectId, creatorId, name, secretType, algorithm, bitLength, mode, expiration, payload } = secret
  const allowed = await one(
    database,
    sql<{ fits: boolean; keyActive: boolean }>`
     WITH allowed AS MATERIALIZED (
       SELECT quota_allows(${projectId}::text, 'secrets', ${limit}) AS fits,
              ${key}::uuid IS NULL OR EXISTS (SELECT 1 FROM project_key WHERE id = ${key}::uuid AND active) AS key_active),
     made AS (
       INSERT INTO secret (id, project_id, creator_id, name, secret_type, algorithm, bit_length, mode, expiration,
                           content_type, project_key_id, ciphertext, created_at, updated_at)
       SELECT ${id}::uuid, ${projectId}, ${creatorId}, ${name}, ${secretType}, ${algorithm}, ${bitLength}::integer, ${mode},
              ${expiration}::timestamptz, ${payload?.contentType ?? null}, ${key}::uuid, ${sealed?.ciphertext ?? null}::bytea,
              now(), now()
         FROM allowed WHERE fits AND key_active RETURNING id),
     logged AS (${audit})
     SELECT fits, key_active AS "keyActive" FROM allowed`,
  )
  if (!allowed.fits) return 'quota'
  return allowed.keyActive ? 'stored' : 'key replaced'
}
