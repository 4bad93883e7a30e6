import type { Knex } from 'knex'
import type { Answer } from '../../../api/answer.js'
import type { Parameter } from '../../../api/schema.js'
import { many, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { badRequest, conflict } from '../../../http/errors.js'
import { auditInsert } from '../../audit/record.js'
import { requireUnbound } from '../../bindings/binding.js'
import { findSecret } from '../../secrets/secret.js'
import { type AllowOn, type ApiService, actorIn, type Call } from '../dialect.js'

/** From this microversion on, deleting a secret with consumers needs `force`. */
const FORCE_MINOR = 2

/**
 * Deletes a secret: removes its ciphertext at once and leaves a tombstone. The lock serialises this with concurrent
 * requests that add the secret to containers or register consumers.
 */
export async function deleteSecret({ database, config }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  return inTransaction(database, async trx => {
    const secret = await findSecret(trx, call.params.id, { lock: sql`FOR UPDATE OF s` })
    allowOn(secret)
    await requireUnbound(trx, 'secrets', secret.id)
    if (config.delete_referenced_secrets) await requireContainersUnbound(trx, secret.id)
    const needsForce = call.minor >= FORCE_MINOR && !isForced(call.query.get('force'))
    const audit = auditInsert(
      actorIn(call),
      { action: 'secret.delete', outcome: 'success', targetType: 'secret', targetId: secret.id },
      sql`gone`,
    )
    const { id } = secret
    const uses = await one(
      trx,
      sql<{ referenced: boolean; consumed: boolean }>`
       WITH uses AS MATERIALIZED (
         SELECT NOT ${config.delete_referenced_secrets} AND EXISTS (SELECT 1 FROM container_secret WHERE secret_id = ${id}) AS referenced,
                ${needsForce} AND EXISTS (SELECT 1 FROM secret_consumer WHERE secret_id = ${id}) AS consumed),
       free AS (SELECT ${id}::uuid AS id FROM uses WHERE NOT referenced AND NOT consumed),
       unlinked AS (DELETE FROM container_secret r USING free WHERE r.secret_id = free.id),
       released AS (DELETE FROM secret_consumer c USING free WHERE c.secret_id = free.id),
       gone AS (
         UPDATE secret s SET deleted_at = now(), ciphertext = NULL, project_key_id = NULL, metadata = '{}', acl_users = '{}'
           FROM free WHERE s.id = free.id RETURNING s.id),
       logged AS (${audit})
       SELECT referenced, consumed FROM uses`,
    )
    if (uses.referenced)
      throw conflict(
        'A container refers to the secret. Delete the container first, or let the operator set key_manager.delete_referenced_secrets.',
      )
    if (uses.consumed) throw badRequest('The secret has consumers; force=true deletes it anyway.')
    return { status: 204 }
  })
}

/**
 * Refuses to delete a part of a container that a load balancer uses. Locks the containers, as whoever binds one waits
 * for the lock.
 * @throws ApiError 409 that lists the load balancers
 */
async function requireContainersUnbound(database: Knex, secretId: string): Promise<void> {
  const containers = await many(
    database,
    sql<{ id: string }>`
      SELECT c.id FROM container c WHERE c.id IN (SELECT container_id FROM container_secret WHERE secret_id = ${secretId})
       ORDER BY c.id FOR UPDATE`,
  )
  for (const { id } of containers) await requireUnbound(database, 'containers', id)
}

/** The query parameter that allows deleting a secret with consumers. */
export const FORCE: Parameter = {
  name: 'force',
  in: 'query',
  description: 'Whether to delete a secret with consumers; needed from microversion 1.2 on.',
  schema: { type: 'boolean', default: false },
}

const YES: readonly string[] = ['true', '1', 'yes', 'on', 't', 'y']
const NO: readonly string[] = ['false', '0', 'no', 'off', 'f', 'n']

/** @throws ApiError 400 unless it is a boolean */
function isForced(text: string | null): boolean {
  if (text === null) return false
  const word = text.trim().toLowerCase()
  if (YES.includes(word)) return true
  if (NO.includes(word)) return false
  throw badRequest('The query parameter force must be true or false.')
}
