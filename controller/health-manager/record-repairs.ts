import type { Repair } from '../../amphora-agent/protocol/repairs.js'
import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { json, sql } from '../database/sql.js'
import { isFromTheFuture } from './record-beats.js'

export type Repaired = { amphoraId: string; repairs: readonly Repair[] }

/** How many repairs of one load balancer the history takes in an hour: an amphora that was taken over may claim any number. */
const MOST_PER_HOUR = 100

/**
 * Writes repairs into the histories of their load balancers, each once, however often and to however many health managers it was told: an
 * amphora's repairs have rising times, and only those after the last one on record are news.
 */
export async function recordRepairs(database: Database, repaired: readonly Repaired[]): Promise<void> {
  const told = repaired.flatMap(({ amphoraId, repairs }) => repairs.map(repair => ({ amphoraId, ...repair })))
  if (told.length === 0) return
  await execute(
    database,
    sql`
     WITH told AS (
       SELECT * FROM jsonb_to_recordset(${json(told)}::jsonb) AS v("amphoraId" uuid, kind text, "atMs" bigint, text text)),
     known AS (
       SELECT h.amphora_id, h.repaired_ms FROM amphora_health h
        WHERE h.amphora_id IN (SELECT "amphoraId" FROM told) ORDER BY h.amphora_id FOR UPDATE),
     news AS (
       SELECT told.*, row_number() OVER (PARTITION BY a.load_balancer_id ORDER BY "atMs") AS place, lb.id, lb.generation
         FROM told
         JOIN known ON known.amphora_id = told."amphoraId"
         JOIN amphora a ON a.id = told."amphoraId"
         JOIN load_balancer lb ON lb.id = a.load_balancer_id
        WHERE told."atMs" > known.repaired_ms AND NOT ${isFromTheFuture(sql`told."atMs"`)}),
     remembered AS (
       UPDATE amphora_health h SET repaired_ms = latest.ms
         FROM (SELECT "amphoraId", max("atMs") AS ms FROM news GROUP BY "amphoraId") AS latest
        WHERE h.amphora_id = latest."amphoraId")
     INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
     SELECT id, generation, kind, jsonb_build_object('repair', jsonb_build_object('amphora_id', "amphoraId", 'text', text,
              'repaired_at', to_char(to_timestamp("atMs" / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')))
       FROM news
      WHERE place + (SELECT count(*) FROM load_balancer_event e
                      WHERE e.load_balancer_id = news.id AND e.kind IN ('repaired', 'closed') AND e.created_at > now() - interval '1 hour')
            <= ${MOST_PER_HOUR}
      ORDER BY "atMs"`,
  )
}
