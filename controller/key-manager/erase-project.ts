import type { Database } from '../database/connection.js'
import { inTransaction } from '../database/transaction.js'
import { type Actor, auditInsert } from './audit/record.js'
import { deleteAuthorities } from './certificate-authorities/delete-authorities.js'

/** How many live objects of each kind went. */
export type ErasedCounts = { secrets: number; containers: number; orders: number; certificateAuthorities: number }

/**
 * Removes all that the key manager holds for a project that no longer is, and its keys: whatever ciphertext a backup still has can then be
 * read by nobody. Only tombstones stay. Safe to repeat; a project that is not known has nothing to remove.
 */
export async function eraseProject(database: Database, projectId: string): Promise<ErasedCounts> {
  return inTransaction(database, async trx => {
    const rowsOf = async (sql: string, bindings = [projectId]) => (await trx.raw(sql, bindings)).rowCount as number
    // A project may have millions of secrets, and each statement takes all that there is.
    await trx.raw(`SET LOCAL statement_timeout = '30min'`)
    await trx.raw('SELECT 1 FROM project WHERE id = ? FOR UPDATE', [projectId])
    const orders = await rowsOf(
      `UPDATE secret_order SET deleted_at = now(), sealed_passphrase = NULL, project_key_id = NULL, fence = fence + 1
        WHERE project_id = ? AND deleted_at IS NULL`,
    )
    // What is being stored under a key now is waited for, and goes with the rest; what comes later finds the key gone.
    await trx.raw('SELECT 1 FROM project_key WHERE project_id = ? FOR UPDATE', [projectId])
    await trx.raw(`DELETE FROM container_secret r USING container c WHERE c.id = r.container_id AND c.project_id = ?`, [
      projectId,
    ])
    await trx.raw(
      `DELETE FROM container_consumer u USING container c WHERE c.id = u.container_id AND c.project_id = ?`,
      [projectId],
    )
    await trx.raw(`DELETE FROM secret_consumer u USING secret s WHERE s.id = u.secret_id AND s.project_id = ?`, [
      projectId,
    ])
    for (const table of ['container_consumer', 'secret_consumer', 'project_quota', 'project_secret_store']) {
      await trx(table).where({ project_id: projectId }).delete()
    }
    const containers = await rowsOf(
      `UPDATE container SET deleted_at = now(), acl_users = '{}' WHERE project_id = ? AND deleted_at IS NULL`,
    )
    // An expired secret or a tombstone may still have ciphertext, so all are looked at.
    const secrets = await rowsOf(
      `UPDATE secret SET deleted_at = coalesce(deleted_at, now()), ciphertext = NULL, project_key_id = NULL, metadata = '{}', acl_users = '{}'
        WHERE project_id = ? AND (deleted_at IS NULL OR project_key_id IS NOT NULL)`,
    )
    await trx('project_certificate_authority').where({ project_id: projectId }).delete()
    const actor: Actor = { userId: null, projectId, requestId: null, remoteAddress: null }
    const certificateAuthorities = await deleteAuthorities(trx, { projectId }, actor)
    const keys = await rowsOf('DELETE FROM project_key WHERE project_id = ?')
    await trx('project').where({ id: projectId }).delete()
    const counts = { secrets, containers, orders, certificateAuthorities }
    if (secrets + containers + orders + certificateAuthorities + keys > 0) {
      const audit = auditInsert(
        actor,
        { action: 'project.erase', outcome: 'success', targetType: 'project', targetId: projectId, detail: counts },
        '(SELECT 1) once',
      )
      await trx.raw(audit.sql, audit.bindings)
    }
    return counts
  })
}
