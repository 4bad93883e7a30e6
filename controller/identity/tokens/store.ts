import { createHash, randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import { execute, maybeOne } from '../../database/query.js'
import { json, sql } from '../../database/sql.js'
import { FloodError } from '../../http/errors.js'
import type { TokenDocument } from './document.js'

/** How long an expired token can still be read with ?allow_expired, in seconds. */
export const EXPIRED_WINDOW_SECONDS = 172_800

export type StoredToken = { sha256: Buffer; document: TokenDocument; expiresAt: Date }

/** A new bearer token of 43 random characters. Only its hash is ever stored. */
export const newToken = (): string => randomBytes(32).toString('base64url')

/** Tokens are random, so a fast hash is as safe as a slow one. */
export const tokenHash = (token: string): Buffer => createHash('sha256').update(token).digest()

/** Finds a token that is valid or, with `allowExpired`, expired less than 48 h ago. One query. */
export async function findToken(
  database: Knex,
  sha256: Buffer,
  { allowExpired = false } = {},
): Promise<StoredToken | null> {
  const grace = allowExpired ? EXPIRED_WINDOW_SECONDS : 0
  const row = await maybeOne(
    database,
    sql<{ document: TokenDocument; expires_at: Date }>`
      SELECT document, expires_at FROM token
       WHERE sha256 = ${sha256} AND expires_at > now() - ${grace}::integer * interval '1 second'`,
  )
  return row === undefined ? null : { sha256, document: row.document, expiresAt: row.expires_at }
}

/**
 * Stores a new token. If its user is at the limit, deletes the oldest expired tokens; valid ones stay. Tokens of
 * application credentials have a separate limit, so that a runaway program does not keep the owner from logging in to
 * delete its credential.
 * @throws FloodError 429 if all of the user's tokens are valid
 */
export async function storeToken(
  trx: Knex,
  { sha256, document, expiresAt }: StoredToken,
  maxPerUser: number,
): Promise<void> {
  const userId = document.user.id
  const applicationCredentialId = document.application_credential?.id ?? null
  const isOfKind = applicationCredentialId === null ? sql`IS NULL` : sql`IS NOT NULL`
  const others = sql`FROM token WHERE user_id = ${userId} AND application_credential_id ${isOfKind}`
  const insert = async (): Promise<boolean> => {
    const inserted = await execute(
      trx,
      sql`INSERT INTO token (sha256, user_id, project_id, domain_id, application_credential_id, document, expires_at)
          SELECT ${sha256}, ${userId}, ${document.project?.id ?? null}, ${document.domain?.id ?? null},
                 ${applicationCredentialId}, ${json(document)}::jsonb, ${expiresAt}::timestamptz
           WHERE NOT EXISTS (SELECT ${others} OFFSET ${maxPerUser - 1})`,
    )
    return inserted === 1
  }
  if (await insert()) return
  // Delete enough that the next thousand logins need not do so.
  await execute(
    trx,
    sql`DELETE FROM token
         WHERE sha256 IN (SELECT sha256 ${others} AND expires_at < now() ORDER BY expires_at LIMIT ${PURGE_BATCH})`,
  )
  if (await insert()) return
  const message = `The user has ${maxPerUser} valid tokens, which is the limit. Revoke some or reuse them until they expire.`
  throw new FloodError(429, message, `Tokens of user ${userId}`, 60)
}

/** Keeps each statement short, however many tokens have expired. */
const PURGE_BATCH = 1000

/** Deletes every token that can no longer be read, even with ?allow_expired. */
export async function purgeExpiredTokens(database: Knex): Promise<void> {
  for (let purged = PURGE_BATCH; purged === PURGE_BATCH; ) {
    purged = await execute(
      database,
      sql`DELETE FROM token WHERE sha256 IN (
            SELECT sha256 FROM token WHERE expires_at < now() - ${EXPIRED_WINDOW_SECONDS} * interval '1 second'
             LIMIT ${PURGE_BATCH} FOR UPDATE SKIP LOCKED)`,
    )
  }
}
