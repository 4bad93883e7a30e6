import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { identifier, sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import { eraseBindingKeys } from './acme-server/store/binding-keys.js'
import { type Actor, recordAudit } from './audit/record.js'
import { deleteAuthorities } from './certificate-authorities/delete-authorities.js'

/** Live objects erased, by kind. */
export type ErasedCounts = { secrets: number; containers: number; orders: number; certificateAuthorities: number }

/**
 * Erases everything the key manager holds for a deleted project, its keys included, so that nobody can decrypt
 * ciphertext left in a backup. Only tombstones stay. Safe to repeat; for an unknown project it does nothing.
 */
export async function eraseProject(database: Database, projectId: string): Promise<ErasedCounts> {
  return inTransaction(database, async trx => {
    // A project may have millions of secrets, and one statement handles all of them.
    await execute(trx, sql`SET LOCAL statement_timeout = '30min'`)
    await execute(trx, sql`SELECT 1 FROM project WHERE id = ${projectId} FOR UPDATE`)
    const orders = await execute(
      trx,
      sql`UPDATE secret_order SET deleted_at = now(), sealed_passphrase = NULL, project_key_id = NULL, fence = fence + 1
           WHERE project_id = ${projectId} AND deleted_at IS NULL`,
    )
    // Waits for what is being stored under a key now, and then erases it too. Anything later finds no key.
    await execute(trx, sql`SELECT 1 FROM project_key WHERE project_id = ${projectId} FOR UPDATE`)
    await execute(
      trx,
      sql`DELETE FROM container_secret r USING container c WHERE c.id = r.container_id AND c.project_id = ${projectId}`,
    )
    await execute(
      trx,
      sql`DELETE FROM container_consumer u USING container c WHERE c.id = u.container_id AND c.project_id = ${projectId}`,
    )
    await execute(
      trx,
      sql`DELETE FROM secret_consumer u USING secret s WHERE s.id = u.secret_id AND s.project_id = ${projectId}`,
    )
    for (const table of [
      'certificate',
      'pending_certificate',
      'container_consumer',
      'secret_consumer',
      'project_quota',
      'project_secret_store',
    ]) {
      await execute(trx, sql`DELETE FROM ${identifier(table)} WHERE project_id = ${projectId}`)
    }
    const containers = await execute(
      trx,
      sql`UPDATE container SET deleted_at = now(), acl_users = '{}' WHERE project_id = ${projectId} AND deleted_at IS NULL`,
    )
    // Includes expired secrets and tombstones, which may still have ciphertext.
    const secrets = await execute(
      trx,
      sql`UPDATE secret SET deleted_at = coalesce(deleted_at, now()), ciphertext = NULL, project_key_id = NULL,
                 metadata = '{}', acl_users = '{}'
           WHERE project_id = ${projectId} AND (deleted_at IS NULL OR project_key_id IS NOT NULL)`,
    )
    await execute(trx, sql`DELETE FROM project_certificate_authority WHERE project_id = ${projectId}`)
    const actor: Actor = { userId: null, projectId, requestId: null, remoteAddress: null }
    const certificateAuthorities = await deleteAuthorities(trx, { projectId }, actor)
    await eraseBindingKeys(trx, projectId)
    const keys = await execute(trx, sql`DELETE FROM project_key WHERE project_id = ${projectId}`)
    await execute(trx, sql`DELETE FROM project WHERE id = ${projectId}`)
    const counts = { secrets, containers, orders, certificateAuthorities }
    if (secrets + containers + orders + certificateAuthorities + keys > 0) {
      await recordAudit(trx, actor, {
        action: 'project.erase',
        outcome: 'success',
        targetType: 'project',
        targetId: projectId,
        detail: counts,
      })
    }
    return counts
  })
}
