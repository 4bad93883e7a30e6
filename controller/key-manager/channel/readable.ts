import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { BINDS } from '../bindings/binding.js'
import { KEY_COLUMNS, type KeyRow, type SealedWithKey, sealedFrom } from '../crypto/keyring.js'
import { liveSecret } from '../secrets/secret.js'

/** Whom an amphora reads for. */
export type Reading = { loadBalancerId: string; projectId: string }

export type ReadableSecret = Reading & { id: string; contentType: string; sealed: SealedWithKey }

/** SQL over the aliases a (amphora_reader) and o (secret): its load balancer uses the secret, alone or in a container. */
const USES_SECRET = sql`(
  EXISTS (SELECT FROM secret_consumer c WHERE c.secret_id = o.id AND c.load_balancer_id = a.load_balancer_id AND ${BINDS})
  OR EXISTS (SELECT FROM container_secret r JOIN container k ON k.id = r.container_id AND k.deleted_at IS NULL
               JOIN container_consumer c ON c.container_id = k.id
              WHERE r.secret_id = o.id AND c.load_balancer_id = a.load_balancer_id AND ${BINDS}))`

/**
 * A secret with its ciphertext, if the amphora's load balancer uses it.
 * @returns null for any other secret
 */
export async function readableSecret(database: Knex, amphoraId: string, id: string): Promise<ReadableSecret | null> {
  const row = await maybeOne(
    database,
    sql<Reading & KeyRow & { id: string; contentType: string | null; ciphertext: Buffer | null }>`
      SELECT o.id, o.content_type AS "contentType", o.ciphertext, ${readingColumns}, ${KEY_COLUMNS}
        FROM amphora_reader a JOIN secret o ON o.id = ${id}
        LEFT JOIN project_key k ON k.id = o.project_key_id
       WHERE a.amphora_id = ${amphoraId} AND ${liveSecret('o')} AND ${USES_SECRET}`,
  )
  if (row === undefined || row.ciphertext === null || row.contentType === null) return null
  const { ciphertext, contentType } = row
  return { ...row, contentType, sealed: sealedFrom(ciphertext, row) }
}

const readingColumns: Fragment = sql`a.load_balancer_id AS "loadBalancerId", o.project_id AS "projectId"`

/** Whether the amphora's load balancer uses the container. */
export async function readableContainer(
  database: Knex,
  amphoraId: string,
  id: string,
): Promise<{ type: string } | null> {
  const row = await maybeOne(
    database,
    sql<{ type: string }>`
      SELECT o.type FROM amphora_reader a JOIN container o ON o.id = ${id} AND o.deleted_at IS NULL
        JOIN container_consumer c ON c.container_id = o.id AND c.load_balancer_id = a.load_balancer_id
       WHERE a.amphora_id = ${amphoraId} AND ${BINDS}`,
  )
  return row ?? null
}
