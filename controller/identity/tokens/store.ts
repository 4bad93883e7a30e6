import { createHash, randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import { execute, maybeOne } from '../../database/query.js'
import { json, sql } from '../../database/sql.js'
import { FloodError } from '../../http/errors.js'
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
  const row = await maybeOne(
    database,
    sql<{ document: TokenDocument; expires_at: Date }>`
      SELECT document, expires_at FROM token
       WHERE sha256 = ${sha256} AND expires_at > now() - ${grace}::integer * interval '1 second'`,
  )
  return row === undefined ? null : { sha256, document: row.document, expiresAt: row.expires_at }
}

/**
 * Stores a token that was just issued. When its user has as many as it may have, the oldest ended ones go; those that are good stay good. Tokens of
 * application credentials count apart, so that one that runs wild does not keep its owner from logging in and deleting it.
 * @throws FloodError 429 when all of them are good
 */
export async function storeToken(
  trx: Knex,
  { sha256, document, expiresAt }: StoredToken,
  mostPerUser: number,
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
           WHERE NOT EXISTS (SELECT ${others} OFFSET ${mostPerUser - 1})`,
    )
    return inserted === 1
  }
  if (await insert()) return
  // So many at once that the next thousand logins need not look.
  await execute(
    trx,
    sql`DELETE FROM token
         WHERE sha256 IN (SELECT sha256 ${others} AND expires_at < now() ORDER BY expires_at LIMIT ${PURGED_AT_ONCE})`,
  )
  if (await insert()) return
  const message = 'The user has too many tokens that are good: revoke some, or use them until they end.'
  throw new FloodError(429, message, `Tokens of user ${userId}`, 60)
}

/** Each statement is short, whatever has gathered. */
const PURGED_AT_ONCE = 1000

/** Deletes every token that nobody can look at any more. */
export async function purgeExpiredTokens(database: Knex): Promise<void> {
  for (let purged = PURGED_AT_ONCE; purged === PURGED_AT_ONCE; ) {
    purged = await execute(
      database,
      sql`DELETE FROM token WHERE sha256 IN (
            SELECT sha256 FROM token WHERE expires_at < now() - ${EXPIRED_WINDOW_SECONDS} * interval '1 second'
             LIMIT ${PURGED_AT_ONCE} FOR UPDATE SKIP LOCKED)`,
    )
  }
}
