import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { RevocationReason } from '../../x509/revocation-list.js'
import type { Actor } from '../audit/record.js'

const REASON: RevocationReason = 'cessationOfOperation'

/**
 * Deletes CAs with their keys and their lists. The certificate of each is revoked by the CA above it, unless that goes too or the certificate has
 * ended: it is on the next list that anybody asks for, and whoever checks a chain learns that all below is worth nothing any more. Records of
 * both are written along.
 * @returns how many CAs there were
 * @throws Error with SQLSTATE 23503 when there are CAs below that are to stay
 */
export async function deleteAuthorities(
  database: Knex,
  which: { id: string } | { projectId: string },
  actor: Actor,
): Promise<number> {
  const chosen = 'id' in which ? sql`id = ${which.id}` : sql`project_id = ${which.projectId}`
  const { userId, projectId, requestId, remoteAddress } = actor
  // The row of the CA above is held before what it has issued is touched: a list that is being made comes before or after.
  return execute(
    database,
    sql`WITH gone AS (DELETE FROM certificate_authority WHERE ${chosen} RETURNING id, parent_id, serial),
     above AS (
       UPDATE certificate_authority SET crl = NULL
        WHERE id IN (SELECT parent_id FROM gone) AND id NOT IN (SELECT id FROM gone) RETURNING id),
     revoked AS (
       UPDATE issued_certificate c SET revoked_at = clock_timestamp(), revocation_reason = ${REASON}
         FROM gone JOIN above ON above.id = gone.parent_id
        WHERE c.ca_id = above.id AND c.serial = gone.serial AND c.revoked_at IS NULL AND c.not_after > now()
        RETURNING c.ca_id, c.serial),
     logged AS (
       INSERT INTO key_manager_audit.audit_record (action, outcome, user_id, project_id, request_id, remote_address, target_type, target_id, detail)
       SELECT e.action, 'success', ${userId}::text, ${projectId}::text, ${requestId}::text, ${remoteAddress}::text, 'ca',
              e.target_id, e.detail
         FROM (SELECT 'ca.delete' AS action, id AS target_id, NULL::jsonb AS detail FROM gone
               UNION ALL
               SELECT 'certificate.revoke', ca_id, jsonb_build_object('serial', serial, 'reason', ${REASON}::text) FROM revoked) e)
     SELECT id FROM gone`,
  )
}
