import type { Knex } from 'knex'
import type { RevocationReason } from '../../../x509/revocation-list.js'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Actor } from '../audit/record.js'

const REASON: RevocationReason = 'cessationOfOperation'

/**
 * Deletes CAs with their keys and revocation lists. The parent of each revokes its certificate, unless the
 * parent is deleted too or the certificate has expired. The revocation is on the next requested list, so
 * clients stop trusting certificates below it. Audit records cover both.
 * @returns how many CAs were deleted
 * @throws Error with SQLSTATE 23503 if CAs below them remain
 */
export async function deleteAuthorities(
  database: Knex,
  which: { id: string } | { projectId: string },
  actor: Actor,
): Promise<number> {
  const condition = 'id' in which ? sql`id = ${which.id}` : sql`project_id = ${which.projectId}`
  const { userId, projectId, requestId, remoteAddress } = actor
  // Locks the parent's row before its issued certificates change, so a list is made either before or after the change.
  return execute(
    database,
    sql`WITH deleted AS (DELETE FROM certificate_authority WHERE ${condition} RETURNING id, parent_id, serial),
     parent AS (
       UPDATE certificate_authority SET crl = NULL
        WHERE id IN (SELECT parent_id FROM deleted) AND id NOT IN (SELECT id FROM deleted) RETURNING id),
     revoked AS (
       UPDATE issued_certificate c SET revoked_at = clock_timestamp(), revocation_reason = ${REASON}
         FROM deleted JOIN parent ON parent.id = deleted.parent_id
        WHERE c.ca_id = parent.id AND c.serial = deleted.serial AND c.revoked_at IS NULL AND c.not_after > now()
        RETURNING c.ca_id, c.serial),
     logged AS (
       INSERT INTO key_manager_audit.audit_record (action, outcome, user_id, project_id, request_id, remote_address, target_type, target_id, detail)
       SELECT e.action, 'success', ${userId}::text, ${projectId}::text, ${requestId}::text, ${remoteAddress}::text, 'ca',
              e.target_id, e.detail
         FROM (SELECT 'ca.delete' AS action, id AS target_id, NULL::jsonb AS detail FROM deleted
               UNION ALL
               SELECT 'certificate.revoke', ca_id, jsonb_build_object('serial', serial, 'reason', ${REASON}::text) FROM revoked) e)
     SELECT id FROM deleted`,
  )
}
