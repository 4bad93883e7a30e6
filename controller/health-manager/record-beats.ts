import type { Mismatch } from '../../amphora-agent/protocol/repairs.js'
import type { Database } from '../database/connection.js'
import { execute, many } from '../database/query.js'
import { type Fragment, json, sql } from '../database/sql.js'
import { CLOCK_TOLERANCE_MS } from './replay-window.js'
import { gapSeconds, type HeartbeatTiming } from './silence.js'

/** The latest heartbeat of one amphora since the last write. */
export type Heard = {
  amphoraId: string
  bootId: string
  seq: number
  sentMs: number
  generation: number
  configHash: string
  needsApply: boolean
  vrrpMaster: boolean
  haproxyRunning: boolean
  mismatches: readonly Mismatch[]
}

/** SQL condition: a time in milliseconds is further ahead of the database's clock than an honest amphora's can be. */
export const isFromTheFuture = (column: Fragment): Fragment =>
  sql`${column} > extract(epoch FROM now()) * 1000 + ${CLOCK_TOLERANCE_MS}`

/**
 * Writes heartbeats in one statement, whatever the number of amphorae, with the database's time. Those of enrolled hosts
 * that carry no amphora say that such a host is there; the first of several health managers to hear one writes that, and
 * none waits for another. Skips amphorae without a row, and heartbeats no newer than what another health manager has
 * already written.
 */
export async function recordBeats(database: Database, heard: readonly Heard[], timing: HeartbeatTiming): Promise<void> {
  if (heard.length === 0) return
  const gap = sql`${gapSeconds(timing)} * interval '1 second'`
  await execute(
    database,
    sql`
     WITH v AS (
       SELECT * FROM jsonb_to_recordset(${json(heard)}::jsonb) AS v("amphoraId" uuid, "bootId" text, seq bigint, "sentMs" bigint,
            generation bigint, "configHash" text, "needsApply" boolean, "vrrpMaster" boolean, "haproxyRunning" boolean, mismatches text[])),
     hosts AS (
       SELECT id FROM enrolled_host
        WHERE id IN (SELECT "amphoraId" FROM v) AND (last_seen IS NULL OR last_seen < now() - interval '1 second')
          FOR UPDATE SKIP LOCKED),
     seen AS (UPDATE enrolled_host SET last_seen = now() FROM hosts WHERE enrolled_host.id = hosts.id)
     INSERT INTO amphora_health AS h
       (amphora_id, boot_id, last_seq, last_seen, sent_ms, generation, config_hash, needs_apply, vrrp_master, haproxy_running, mismatches, mismatched_since)
     SELECT v."amphoraId", v."bootId", v.seq, now(), v."sentMs", v.generation, v."configHash", v."needsApply", v."vrrpMaster",
            v."haproxyRunning", v.mismatches, CASE WHEN v.mismatches <> '{}' THEN now() END
       FROM v JOIN amphora a ON a.id = v."amphoraId"
      ORDER BY v."amphoraId"
     ON CONFLICT (amphora_id) DO UPDATE SET
       heard_since = CASE WHEN h.last_seen < now() - ${gap} THEN now() ELSE h.heard_since END,
       boot_id = excluded.boot_id, last_seq = excluded.last_seq, last_seen = excluded.last_seen, sent_ms = excluded.sent_ms,
       generation = excluded.generation, config_hash = excluded.config_hash, needs_apply = excluded.needs_apply,
       vrrp_master = excluded.vrrp_master, haproxy_running = excluded.haproxy_running,
       mismatches = excluded.mismatches,
       mismatched_since = CASE WHEN excluded.mismatches = '{}' THEN NULL
                               WHEN h.boot_id <> excluded.boot_id OR h.last_seen < now() - ${gap} THEN now()
                               ELSE coalesce(h.mismatched_since, now()) END
     WHERE (h.boot_id = excluded.boot_id AND h.last_seq < excluded.last_seq)
        OR (h.boot_id <> excluded.boot_id AND (h.sent_ms < excluded.sent_ms OR ${isFromTheFuture(sql`h.sent_ms`)}))`,
  )
}

/** The last datagram recorded for each amphora, so that a restarted health manager accepts no old ones. */
export async function lastHeard(
  database: Database,
): Promise<{ amphoraId: string; bootId: string; seq: number; sentMs: number }[]> {
  return many(
    database,
    sql<{ amphoraId: string; bootId: string; seq: number; sentMs: number }>`
      SELECT amphora_id AS "amphoraId", boot_id AS "bootId", last_seq AS seq, sent_ms AS "sentMs" FROM amphora_health`,
  )
}
