import type { Repair } from '../../amphora-agent/protocol/repairs.js'
import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { json, sql } from '../database/sql.js'
import { isFromTheFuture } from './record-beats.js'

export type Repaired = { amphoraId: string; repairs: readonly Repair[] }

/** Repairs per load balancer and hour that the history accepts: a compromised amphora may claim any number. */
const MAX_PER_HOUR = 100

/**
 * Writes repairs to their load balancers' histories, each once, however often and to however many health managers
 * it was reported: an amphora's repairs have increasing times, and only those after the last recorded one are
 * new.
 */
export async function recordRepairs(database: Database, repaired: readonly Repaired[]): Promise<void> {
  const reported = repaired.flatMap(({ amphoraId, repairs }) => repairs.map(repair => ({ amphoraId, ...repair })))
  if (reported.length === 0) return
  await execute(
    database,
    sql`
     WITH reported AS (
       SELECT * FROM jsonb_to_recordset(${json(reported)}::jsonb) AS v("amphoraId" uuid, kind text, "atMs" bigint, text text)),
     known AS (
       SELECT h.amphora_id, h.repaired_ms FROM amphora_health h
        WHERE h.amphora_id IN (SELECT "amphoraId" FROM reported) ORDER BY h.amphora_id FOR UPDATE),
     fresh AS (
       SELECT reported.*, row_number() OVER (PARTITION BY a.load_balancer_id ORDER BY "atMs") AS place, lb.id, lb.generation
         FROM reported
         JOIN known ON known.amphora_id = reported."amphoraId"
         JOIN amphora a ON a.id = reported."amphoraId"
         JOIN load_balancer lb ON lb.id = a.load_balancer_id
        WHERE reported."atMs" > known.repaired_ms AND NOT ${isFromTheFuture(sql`reported."atMs"`)}),
     remembered AS (
       UPDATE amphora_health h SET repaired_ms = latest.ms
         FROM (SELECT "amphoraId", max("atMs") AS ms FROM fresh GROUP BY "amphoraId") AS latest
        WHERE h.amphora_id = latest."amphoraId")
     INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
     SELECT id, generation, kind, jsonb_build_object('repair', jsonb_build_object('amphora_id', "amphoraId", 'text', text,
              'repaired_at', to_char(to_timestamp("atMs" / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')))
       FROM fresh
      WHERE place + (SELECT count(*) FROM load_balancer_event e
                      WHERE e.load_balancer_id = fresh.id AND e.kind IN ('repaired', 'closed') AND e.created_at > now() - interval '1 hour')
            <= ${MAX_PER_HOUR}
      ORDER BY "atMs"`,
  )
}
