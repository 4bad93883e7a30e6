import { createHash, randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import { query } from '../../database/query.js'
import type { TokenDocument } from './document.js'

/** How long after its end a token can still be looked at with ?allow_expired, in seconds. */
export const EXPIRED_WINDOW_SECONDS = 172_800

export type StoredToken = { sha256: Buffer; document: TokenDocument; expiresAt: Date }

/** A new bearer token: 43 characters that nobody can guess. Only its hash is ever stored. */
export const newToken = (): string => randomBytes(32).toString('base64url')

/** The tokens are random, so a fast hash is as good as a slow one here. */
export const tokenHash = (token: string): Buffer => createHash('sha256').update(token).digest()

/** Finds a token that is good now (or ended less than 48 h ago, when `allowExpired`). One query. */
export async function findToken(
  database: Knex,
  sha256: Buffer,
  { allowExpired = false } = {},
): Promise<StoredToken | null> {
  const grace = allowExpired ? EXPIRED_WINDOW_SECONDS : 0
  const [row] = await query<{ document: TokenDocument; expires_at: Date }>(
    database,
    `SELECT document, expires_at FROM token WHERE sha256 = ? AND expires_at > now() - ?::integer * interval '1 second'`,
    [sha256, grace],
  )
  return row === undefined ? null : { sha256, document: row.document, expiresAt: row.expires_at }
}

/** Stores a token that was just issued. */
export async function storeToken(trx: Knex, { sha256, document, expiresAt }: StoredToken): Promise<void> {
  await trx('token').insert({
    sha256,
    user_id: document.user.id,
    project_id: document.project?.id ?? null,
    domain_id: document.domain?.id ?? null,
    application_credential_id: document.application_credential?.id ?? null,
    document,
    expires_at: expiresAt,
  })
}

/** Deletes tokens that nobody can look at any more, at most a thousand: each call is short, whatever has gathered. */
export async function purgeExpiredTokens(database: Knex): Promise<void> {
  await database.raw(
    `DELETE FROM token WHERE sha256 IN (
       SELECT sha256 FROM token WHERE expires_at < now() - ? * interval '1 second' LIMIT 1000 FOR UPDATE SKIP LOCKED)`,
    [EXPIRED_WINDOW_SECONDS],
  )
}
