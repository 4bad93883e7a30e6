import type { Repair } from '../../amphora-agent/protocol/repairs.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { json, sql } from '../database/sql.js'
import { isFromTheFuture } from './record-beats.js'

export type Repaired = { amphoraId: string; repairs: readonly Repair[] }

/**
 * How long a proof of serving and the amphora's own repair count as reports of the same mismatch: longer than all
 * handshakes of a proof take.
 */
export const SAME_MISMATCH_SECONDS = 30

/** Repairs per load balancer and hour that the history accepts: a compromised amphora may claim any number. */
const MAX_PER_HOUR = 100

/**
 * Writes repairs to their load balancers' histories, each once, however often and to however many health managers
 * it was reported: an amphora's repairs have increasing times, and only those after the last recorded one are
 * new. A certificate that was out of place is a mismatch like one that a proof of serving finds, unless a proof has
 * found it already.
 * @returns the mismatches that are new
 */
export async function recordRepairs(
  database: Database,
  repaired: readonly Repaired[],
): Promise<{ amphoraId: string; text: string }[]> {
  const reported = repaired.flatMap(({ amphoraId, repairs }) => repairs.map(repair => ({ amphoraId, ...repair })))
  if (reported.length === 0) return []
  return many(
    database,
    sql<{ amphoraId: string; text: string }>`
     WITH reported AS (
       SELECT * FROM jsonb_to_recordset(${json(reported)}::jsonb) AS v("amphoraId" uuid, kind text, "atMs" bigint, text text)),
     known AS (
       SELECT h.amphora_id, h.repaired_ms FROM amphora_health h
        WHERE h.amphora_id IN (SELECT "amphoraId" FROM reported) ORDER BY h.amphora_id FOR UPDATE),
     fresh AS (
       SELECT reported.*, known.repaired_ms, row_number() OVER (PARTITION BY a.load_balancer_id ORDER BY "atMs") AS place,
              to_char(to_timestamp("atMs" / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') AS repaired_at, lb.id, lb.generation
         FROM reported
         JOIN known ON known.amphora_id = reported."amphoraId"
         JOIN amphora a ON a.id = reported."amphoraId"
         JOIN load_balancer lb ON lb.id = a.load_balancer_id
        WHERE reported."atMs" > known.repaired_ms AND NOT ${isFromTheFuture(sql`reported."atMs"`)}),
     remembered AS (
       UPDATE amphora_health h SET repaired_ms = latest.ms
         FROM (SELECT "amphoraId", max("atMs") AS ms FROM fresh GROUP BY "amphoraId") AS latest
        WHERE h.amphora_id = latest."amphoraId"),
     told AS (
       INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
       SELECT id, generation, kind,
              CASE WHEN kind = 'certificate'
                   THEN jsonb_build_object('certificate', jsonb_build_object(
                          'amphora_id', "amphoraId", 'notice', 'mismatch', 'text', text, 'repaired_at', repaired_at))
                   ELSE jsonb_build_object('repair', jsonb_build_object('amphora_id', "amphoraId", 'text', text,
                          'repaired_at', repaired_at))
              END
         FROM fresh
        WHERE place + (SELECT count(*) FROM load_balancer_event e
                        WHERE e.load_balancer_id = fresh.id AND e.kind IN ('repaired', 'closed', 'certificate')
                          AND e.created_at > now() - interval '1 hour')
              <= ${MAX_PER_HOUR}
          AND NOT (kind = 'certificate' AND EXISTS (
                SELECT FROM load_balancer_event e
                 WHERE e.load_balancer_id = fresh.id AND e.kind = 'certificate'
                   AND e.detail->'certificate'->>'notice' = 'mismatch'
                   AND e.detail->'certificate'->>'amphora_id' = "amphoraId"::text
                   AND e.detail->'certificate'->>'repaired_at' IS NULL
                   AND e.created_at > greatest(now() - ${SAME_MISMATCH_SECONDS} * interval '1 second',
                                               to_timestamp(repaired_ms / 1000.0))))
        ORDER BY "atMs"
       RETURNING kind, detail),
     alarmed AS (
       UPDATE load_balancer SET proof_at = least(proof_at, now())
        WHERE proof_at IS NOT NULL AND id IN (SELECT id FROM fresh WHERE kind = 'certificate'))
     SELECT detail->'certificate'->>'amphora_id' AS "amphoraId", detail->'certificate'->>'text' AS text
       FROM told WHERE kind = 'certificate'`,
  )
}
