import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import type { Logger } from '../log/log.js'

/** Days before the expiry; 0 is the expiry itself. */
const NOTICE_DAYS = [30, 14, 7, 3, 1, 0]

type Notice = { loadBalancer: string; ref: string; names: string[]; notAfter: string; days: number }

/**
 * Notes certificates in use that expire soon in the history of their load balancers and the log: once for each of
 * NOTICE_DAYS. A certificate that took the place of another starts anew. One that renews itself is replaced before most
 * of its notices are due.
 * @returns how many there were
 */
export async function giveExpiryNotices(database: Database, log: Logger): Promise<number> {
  const notices = await many(
    database,
    sql<Notice>`
     WITH due AS (
       SELECT m.id, m.load_balancer_id, m.ref, m.digest, facts->>'notAfter' AS not_after,
              ARRAY(SELECT jsonb_array_elements_text(facts->'names')) AS names, min(d.days) AS days
         FROM tls_material m
         JOIN unnest(${NOTICE_DAYS}::int[]) AS d (days) ON (facts->>'notAfter')::timestamptz <= now() + d.days * interval '1 day'
        WHERE m.kind = 'certificate' AND m.facts IS NOT NULL
        GROUP BY m.load_balancer_id, m.ref, m.kind
       HAVING m.noticed_digest IS DISTINCT FROM m.digest OR min(d.days) < m.noticed_days),
     noted AS (
       UPDATE tls_material m SET noticed_days = due.days, noticed_digest = due.digest
         FROM due WHERE m.id = due.id AND m.digest IS NOT DISTINCT FROM due.digest
          AND (m.noticed_digest IS DISTINCT FROM due.digest OR due.days < m.noticed_days)
       RETURNING due.*),
     told AS (
       INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
       SELECT lb.id, lb.generation, 'certificate', jsonb_build_object('certificate', jsonb_build_object(
                'notice', CASE WHEN noted.days = 0 THEN 'expired' ELSE 'expires' END,
                'text', 'The certificate ' || noted.ref || ' for ' || coalesce(nullif(array_to_string(noted.names, ', '), ''), 'no name')
                          || CASE WHEN noted.days = 0 THEN ' expired at ' ELSE ' expires at ' END || noted.not_after))
         FROM noted JOIN load_balancer lb ON lb.id = noted.load_balancer_id)
     SELECT load_balancer_id AS "loadBalancer", ref, names, not_after AS "notAfter", days FROM noted`,
  )
  for (const { days, ...notice } of notices) {
    if (days === 0) log.error(notice, 'a certificate in use has expired')
    else log.warn({ ...notice, daysLeft: days }, 'a certificate in use expires soon')
  }
  return notices.length
}
