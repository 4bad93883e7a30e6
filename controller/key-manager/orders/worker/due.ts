import type { Database } from '../../../database/connection.js'

/** Orders that make large primes wait for each other and nobody else; see the column of the same name. */
export const LANES = ['quick', 'primes'] as const

export type Lane = (typeof LANES)[number]

const OPEN = `t.status IN ('PENDING', 'PROCESSING') AND t.deleted_at IS NULL`

/** SQL: which orders (alias t) of a lane have work to do now, whoever may hold them. */
export const dueIn = (lane: Lane): string =>
  `${OPEN} AND t.lane = '${lane}' AND (t.retry_at IS NULL OR t.retry_at <= now())`

/** What waits longest goes first. */
export const DUE_ORDER = 't.created_at, t.id'

/**
 * Seconds until the next order of a lane becomes due without anybody saying so: a retry time, or the end of a dead worker's lease. Zero or
 * less when one is due now; null when nothing is in sight.
 */
export async function secondsUntilDue(database: Database, lane: Lane): Promise<number | null> {
  const { rows } = await database.raw(
    `SELECT extract(epoch FROM min(greatest(t.lease_until, t.retry_at)) - now())::float8 AS seconds
       FROM secret_order t WHERE ${OPEN} AND t.lane = ?`,
    [lane],
  )
  return (rows as { seconds: number | null }[])[0]?.seconds ?? null
}
