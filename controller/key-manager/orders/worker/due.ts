import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { type Fragment, sql, trusted } from '../../../database/sql.js'
import { type ClaimRequest, NOT_HELD } from '../../../queue/claim.js'
import { ORDER_CHANNEL } from '../wake-channel.js'

/** Orders wait behind others of like cost only; see the column of the same name. */
export const LANES = ['quick', 'primes', 'large primes'] as const

export type Lane = (typeof LANES)[number]

/** Written into the text, so that each lane has a plan of its own. */
const literalOf = (lane: Lane): Fragment => trusted(`'${lane}'`)

const OPEN = sql`t.status IN ('PENDING', 'PROCESSING') AND t.deleted_at IS NULL`

/** SQL: a worker is at it. */
const UNDER_WAY = sql`t.status = 'PROCESSING' AND t.deleted_at IS NULL AND NOT ${NOT_HELD}`

const NOT_PUT_OFF = sql`(t.retry_at IS NULL OR t.retry_at <= now())`

/** SQL: an attempt at the order (alias t) has ended without a word, or is under way. The order may be what ends workers. */
const SUSPECT = sql`(t.lapsed_claims > 0 OR t.status = 'PROCESSING')`

/**
 * SQL of the one order of all lanes that may be tried again after an attempt ended without a word: that with the fewest such attempts, and
 * none while another is being tried. So an order that ends its worker takes no other with it time after time.
 */
const NEXT_SUSPECT = sql`(
  SELECT t.id FROM secret_order t
   WHERE ${OPEN} AND ${SUSPECT} AND ${NOT_HELD} AND ${NOT_PUT_OFF}
     AND NOT EXISTS (SELECT FROM secret_order t WHERE ${OPEN} AND ${SUSPECT} AND t.lapsed_claims > 0 AND NOT ${NOT_HELD})
   ORDER BY t.lapsed_claims + (t.status = 'PROCESSING')::integer, t.created_at, t.id LIMIT 1)`

/** Lets the next order go that waits for one which was tried again: it may be of another lane, or for another worker. */
export async function wakeForNextSuspect(database: Database): Promise<void> {
  await execute(database, sql`SELECT pg_notify(${ORDER_CHANNEL}, lane) FROM unnest(${LANES}::text[]) AS lane`)
}

/** SQL: which orders (alias t) of a lane have work to do now. */
const dueIn = (lane: Lane): Fragment =>
  sql`${OPEN} AND t.lane = ${literalOf(lane)} AND ${NOT_PUT_OFF} AND (NOT ${SUSPECT} OR t.id = ${NEXT_SUSPECT})`

/** More than the limit by this many, so that some are left when other workers are just taking the first ones. */
const SPARE_CANDIDATES = 32

/**
 * SQL of what a worker chooses among, for DUE_ORDER: of every project that waits in a lane its oldest orders, numbered from behind those that it has under way. The projects are found one after
 * the other in the index, so that a long queue of one of them is not read.
 */
const candidatesIn = (lane: Lane, limit: number): Fragment => sql`
  WITH RECURSIVE project AS (
    (SELECT t.project_id AS id FROM secret_order t WHERE ${OPEN} AND t.lane = ${literalOf(lane)} ORDER BY t.project_id LIMIT 1)
    UNION ALL
    SELECT next.id FROM project p CROSS JOIN LATERAL (
      SELECT t.project_id AS id FROM secret_order t
       WHERE ${OPEN} AND t.lane = ${literalOf(lane)} AND t.project_id > p.id ORDER BY t.project_id LIMIT 1) next),
  most AS (SELECT ${limit + SPARE_CANDIDATES}::integer AS candidates)
  SELECT o.id, random() AS chance,
         row_number() OVER (PARTITION BY p.id ORDER BY o.created_at, o.id) + under_way.count AS turn
    FROM project p CROSS JOIN LATERAL (
      SELECT count(*) FROM secret_order t
       WHERE ${UNDER_WAY} AND t.lane = ${literalOf(lane)} AND t.project_id = p.id) under_way
    CROSS JOIN LATERAL (
      SELECT t.id, t.created_at FROM secret_order t
       WHERE ${NOT_HELD} AND ${dueIn(lane)} AND t.project_id = p.id
       ORDER BY t.created_at, t.id LIMIT (SELECT candidates FROM most)) o
   ORDER BY turn, chance LIMIT (SELECT candidates FROM most)`

/**
 * Of each project what waits longest goes first, and a project with less under way before one with more; among equals each has the same chance, however many
 * orders it has given.
 */
const DUE_ORDER = sql`c.turn, c.chance`

/** How orders of a lane are claimed. A claim counts the one before it when that ended without a word. */
export const claimsIn = (lane: Lane, owner: string): Omit<ClaimRequest, 'limit'> => ({
  ...{ table: 'secret_order', due: dueIn(lane), order: DUE_ORDER, owner },
  candidates: limit => candidatesIn(lane, limit),
  also: sql`status = 'PROCESSING', lapsed_claims = lapsed_claims + (status = 'PROCESSING')::integer`,
})

/**
 * Seconds until the next order of a lane becomes due without anybody saying so: a retry time, or the end of a dead worker's lease. Zero or
 * less when one is due now; null when nothing is in sight. What only waits for another that is being tried is woken by its end.
 */
export async function secondsUntilDue(database: Database, lane: Lane): Promise<number | null> {
  const { seconds } = await one(
    database,
    sql<{ seconds: number | null }>`
     SELECT extract(epoch FROM min(greatest(t.lease_until, t.retry_at)) - now())::float8 AS seconds
       FROM secret_order t WHERE ${OPEN} AND t.lane = ${lane} AND (${SUSPECT} OR t.retry_at IS NOT NULL)
        AND NOT (${SUSPECT} AND ${NOT_HELD} AND ${NOT_PUT_OFF})`,
  )
  return seconds
}
