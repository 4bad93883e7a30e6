import type { Counters } from '../../amphora-agent/protocol/heartbeat.js'
import { execute } from '../database/query.js'
import { type Fragment, identifier, identifiers, join, json, sql, trusted } from '../database/sql.js'
import type { Transaction } from '../database/transaction.js'
import { isFromTheFuture } from './record-beats.js'

/** An amphora's counters of one object since the start of the epoch. */
type Reading = { amphoraId: string; epoch: string; sentMs: number } & Counters

export type ListenerReading = Reading & { listenerId: string }
/** A pool's counters for one of its listeners. */
export type PoolReading = Reading & { poolId: string; listenerId: string }

export async function recordListenerStatistics(trx: Transaction, readings: readonly ListenerReading[]): Promise<void> {
  await record(trx, readings, {
    table: 'listener_statistics',
    source: sql`JOIN listener l ON l.id = v."listenerId"`,
    key: { listener_id: sql`l.id` },
  })
}

export async function recordPoolStatistics(trx: Transaction, readings: readonly PoolReading[]): Promise<void> {
  await record(trx, readings, {
    table: 'pool_statistics',
    source: sql`JOIN pool p ON p.id = v."poolId"`,
    key: { pool_id: sql`p.id`, listener_id: sql`v."listenerId"` },
  })
}

/** The largest integer that JSON numbers represent exactly. */
const MAX_TOTAL = Number.MAX_SAFE_INTEGER

/**
 * When a counter restarts (a new epoch), its last value is added to the base, so that the sum never decreases.
 * The base is bounded: otherwise a compromised amphora could restart until the number overflows and the batch for
 * all amphorae fails.
 */
const MERGED = trusted(
  ['bytes_in', 'bytes_out', 'total_connections', 'request_errors']
    .map(
      counter => `
      base_${counter} = least(${MAX_TOTAL}, s.base_${counter} + CASE WHEN s.epoch = excluded.epoch THEN 0 ELSE s.${counter} END),
      ${counter} = CASE WHEN s.epoch = excluded.epoch THEN greatest(s.${counter}, excluded.${counter}) ELSE excluded.${counter} END`,
    )
    .join(','),
)

/** @param into `source` joins the object's table, which omits deleted objects; `key` maps the key columns to values */
async function record(
  trx: Transaction,
  readings: readonly Reading[],
  { table, source, key }: { table: string; source: Fragment; key: Readonly<Record<string, Fragment>> },
): Promise<void> {
  if (readings.length === 0) return
  const columns = identifiers([...Object.keys(key), 'amphora_id'])
  const values = join([...Object.values(key), sql`v."amphoraId"`])
  await execute(
    trx,
    sql`
     INSERT INTO ${identifier(table)} AS s
       (${columns}, epoch, sent_ms, bytes_in, bytes_out, active_connections, total_connections, request_errors)
     SELECT ${values}, v.epoch, v."sentMs", v."bytesIn", v."bytesOut", v."activeConnections", v."totalConnections", v."requestErrors"
       FROM jsonb_to_recordset(${json(readings)}::jsonb) AS v("poolId" uuid, "listenerId" uuid, "amphoraId" uuid, epoch text, "sentMs" bigint,
            "bytesIn" bigint, "bytesOut" bigint, "activeConnections" bigint, "totalConnections" bigint, "requestErrors" bigint)
       ${source}
      ORDER BY ${values}
     ON CONFLICT (${columns}) DO UPDATE SET
       ${MERGED}, active_connections = excluded.active_connections, epoch = excluded.epoch, sent_ms = excluded.sent_ms
     WHERE s.sent_ms <= excluded.sent_ms OR ${isFromTheFuture(sql`s.sent_ms`)}`,
  )
}
