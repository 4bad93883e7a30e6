import type { Knex } from 'knex'
import { sql } from '../../database/sql.js'
import { BATCH_SIZE, inBatches } from './batches.js'

/**
 * Deletes expired secrets, which nobody can read any more. Removes the ciphertext and the references of containers, and
 * leaves a tombstone, as when an owner deletes a secret.
 * @returns how many it deleted
 */
export const deleteExpiredSecrets = (database: Knex, signal?: AbortSignal): Promise<number> =>
  inBatches(
    database,
    sql`WITH expired AS MATERIALIZED (
       SELECT id FROM secret WHERE deleted_at IS NULL AND expiration <= now()
        ORDER BY expiration LIMIT ${BATCH_SIZE} FOR UPDATE SKIP LOCKED),
     unlinked AS (DELETE FROM container_secret r USING expired e WHERE r.secret_id = e.id),
     released AS (DELETE FROM secret_consumer c USING expired e WHERE c.secret_id = e.id),
     gone AS (
       UPDATE secret s SET deleted_at = now(), ciphertext = NULL, project_key_id = NULL, metadata = '{}', acl_users = '{}'
         FROM expired e WHERE s.id = e.id RETURNING s.id, s.project_id),
     logged AS (
       INSERT INTO key_manager_audit.audit_record (action, outcome, project_id, target_type, target_id, detail)
       SELECT 'secret.delete', 'success', project_id, 'secret', id, '{"expired": true}' FROM gone)
     SELECT id FROM gone`,
    signal,
  )
