import { createPrivateKey, type KeyObject } from 'node:crypto'
import { execute, maybeOne, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../../crypto/keyring.js'
import { underActiveKey } from '../../crypto/under-active-key.js'
import type { Order } from '../../orders/outcome.js'
import type { Service } from '../../service.js'

/** Encryption context of the private key of a pending certificate. */
export const pendingKeyContext = (id: string): string => `pending certificate ${id}`

/**
 * The private key for a certificate that takes several steps: the same one in each step, also after a crash.
 * @param make makes the key in the first step. @returns PEM
 * @throws CryptoUnavailable
 */
export async function pendingKey(
  service: Service,
  { id, projectId }: Pick<Order, 'id' | 'projectId'>,
  make: () => Promise<string>,
): Promise<KeyObject> {
  const known = await findPendingKey(service, id)
  if (known !== null) return known
  const { keyring, database } = service
  const pem = await make()
  await underActiveKey(keyring, projectId, async () => {
    const der = createPrivateKey(pem).export({ format: 'der', type: 'pkcs8' })
    const sealed = await keyring.seal(projectId, der, pendingKeyContext(id))
    const { active } = await one(
      database,
      sql<{ active: boolean }>`
        WITH standing AS MATERIALIZED (SELECT id FROM project_key WHERE id = ${sealed.projectKeyId}::uuid AND active),
        stored AS (
          INSERT INTO pending_certificate (id, project_id, project_key_id, sealed_key)
          SELECT ${id}, ${projectId}, standing.id, ${sealed.ciphertext}::bytea FROM standing
          ON CONFLICT (id) DO UPDATE SET project_key_id = excluded.project_key_id, sealed_key = excluded.sealed_key
           WHERE pending_certificate.sealed_key IS NULL)
        SELECT EXISTS (SELECT FROM standing) AS active`,
    )
    return active ? 'stored' : 'key replaced'
  })
  const stored = await findPendingKey(service, id)
  if (stored === null) throw new Error('The key of a pending certificate is gone.')
  return stored
}

async function findPendingKey({ database, keyring }: Service, id: string): Promise<KeyObject | null> {
  const found = await maybeOne(
    database,
    sql<KeyRow & { sealed: Buffer }>`
      SELECT p.sealed_key AS sealed, ${KEY_COLUMNS}
        FROM pending_certificate p JOIN project_key k ON k.id = p.project_key_id WHERE p.id = ${id}`,
  )
  if (found === undefined) return null
  const der = await keyring.open(sealedFrom(found.sealed, found), pendingKeyContext(id))
  return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
}

/** Forgets the key and the state of a certificate that the CA refused: the next attempt begins anew. */
export async function forgetPending({ database }: Pick<Service, 'database'>, id: string): Promise<void> {
  await execute(database, sql`DELETE FROM pending_certificate WHERE id = ${id}`)
}
