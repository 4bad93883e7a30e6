import type { Knex } from 'knex'
import { type Actor, auditInsert } from '../audit/record.js'
import type { Sealed } from '../crypto/keyring.js'
import { quotaReached } from '../faults.js'
import { newId } from '../ids.js'
import type { Service } from '../routes.js'
import { payloadContext } from './secret.js'

/** A secret to be stored; `payload` null is one whose payload comes later. */
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

/** Attempts at a key that is just being replaced. */
const MOST_ATTEMPTS = 5

/**
 * Stores a secret, its audit record with it, in one statement.
 * @returns its id
 * @throws ApiError 403 when the project's quota of secrets is reached
 */
export async function storeSecret(
  { database, keyring, config }: Service,
  secret: SecretToStore,
  actor: Actor,
): Promise<string> {
  const id = newId()
  for (let attempt = 1; ; attempt++) {
    const sealed =
      secret.payload === null ? null : await keyring.seal(secret.projectId, secret.payload.bytes, payloadContext(id))
    const outcome = await insertSecret(database, { id, secret, sealed, actor, limit: config.quota.secrets })
    if (outcome === 'stored') return id
    if (outcome === 'quota') throw quotaReached('secrets')
    if (attempt === MOST_ATTEMPTS) throw new Error(`The key of project ${secret.projectId} is replaced all the time.`)
    keyring.forgetActive(secret.projectId)
  }
}

type Insert = { id: string; secret: SecretToStore; sealed: Sealed | null; actor: Actor; limit: number }

async function insertSecret(
  database: Knex,
  { id, secret, sealed, actor, limit }: Insert,
): Promise<'stored' | 'quota' | 'key replaced'> {
  const audit = auditInsert(
    actor,
    { action: 'secret.create', outcome: 'success', targetType: 'secret', targetId: id },
    'made',
  )
  const { rows } = await database.raw(
    `WITH allowed AS MATERIALIZED (
       SELECT quota_allows(?::text, 'secrets', ?) AS fits,
              ?::uuid IS NULL OR EXISTS (SELECT 1 FROM project_key WHERE id = ?::uuid AND active) AS key_stands),
     made AS (
       INSERT INTO secret (id, project_id, creator_id, name, secret_type, algorithm, bit_length, mode, expiration,
                           content_type, project_key_id, ciphertext, created_at, updated_at)
       SELECT ?::uuid, ?, ?, ?, ?, ?, ?::integer, ?, ?::timestamptz, ?, ?::uuid, ?::bytea, now(), now()
         FROM allowed WHERE fits AND key_stands RETURNING id),
     logged AS (${audit.sql})
     SELECT fits, key_stands AS "keyStands" FROM allowed`,
    [
      ...[secret.projectId, limit, sealed?.projectKeyId ?? null, sealed?.projectKeyId ?? null],
      ...[id, secret.projectId, secret.creatorId, secret.name, secret.secretType, secret.algorithm],
      ...[secret.bitLength, secret.mode, secret.expiration, secret.payload?.contentType ?? null],
      ...[sealed?.projectKeyId ?? null, sealed?.ciphertext ?? null],
      ...audit.bindings,
    ] as Knex.RawBinding[],
  )
  const [allowed] = rows as { fits: boolean; keyStands: boolean }[]
  if (allowed?.fits !== true) return 'quota'
  return allowed.keyStands ? 'stored' : 'key replaced'
}
