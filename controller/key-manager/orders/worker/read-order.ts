import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Claim } from '../../../queue/claim.js'
import { KEY_COLUMNS, type KeyRow, type SealedWithKey, sealedFrom } from '../../crypto/keyring.js'
import type { Order } from '../outcome.js'

export type ClaimedOrder = Omit<Order, 'passphrase'> & {
  sealedPassphrase: SealedWithKey | null
  /** Earlier attempts that never reported a result. */
  lapsedClaims: number
}

/** The claimed order; null when it was deleted or another worker has claimed it since. */
export async function readOrder(database: Database, claim: Claim): Promise<ClaimedOrder | null> {
  const row = await maybeOne(
    database,
    sql<Omit<ClaimedOrder, 'sealedPassphrase'> & KeyRow & { sealed: Buffer | null }>`
     SELECT o.id, o.project_id AS "projectId", o.creator_id AS "creatorId", o.type, o.meta, o.retries,
            o.lapsed_claims AS "lapsedClaims", o.sealed_passphrase AS sealed, ${KEY_COLUMNS}
       FROM secret_order o LEFT JOIN project_key k ON k.id = o.project_key_id
      WHERE o.id = ${claim.id} AND o.fence = ${claim.fence} AND o.deleted_at IS NULL`,
  )
  if (row === undefined) return null
  const { id, projectId, creatorId, type, meta, retries, lapsedClaims, sealed, ...key } = row
  const sealedPassphrase = sealed === null ? null : sealedFrom(sealed, key)
  return { id, projectId, creatorId, type, meta, retries, lapsedClaims, sealedPassphrase }
}
