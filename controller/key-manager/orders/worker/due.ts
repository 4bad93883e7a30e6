import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { type Fragment, sql, trusted } from '../../../database/sql.js'
import { type ClaimRequest, NOT_HELD } from '../../../queue/claim.js'
import { ORDER_CHANNEL } from '../wake-channel.js'

/** Orders wait only for others of similar cost; see the column `lane`. */
export const LANES = ['quick', 'primes', 'large primes'] as const

export type Lane = (typeof LANES)[number]

/** A literal rather than a parameter, so that each lane gets its own query plan. */
const laneLiteral = (lane: Lane): Fragment => trusted(`'${lane}'`)

const OPEN = sql`t.status IN ('PENDING', 'PROCESSING') AND t.deleted_at IS NULL`

/** SQL: a worker holds the order. */
const IN_PROGRESS = sql`t.status = 'PROCESSING' AND t.deleted_at IS NULL AND NOT ${NOT_HELD}`

const NOT_POSTPONED = sql`(t.retry_at IS NULL OR t.retry_at <= now())`

/** SQL: an attempt at the order (alias t) never reported a result, or is in progress. The order may kill its worker. */
const SUSPECT = sql`(t.lapsed_claims > 0 OR t.status = 'PROCESSING')`

/**
 * SQL for the only suspect order of all lanes that may be retried: the one with the fewest lapsed attempts, and
 * none while another suspect is retried. So an order that kills its worker does not repeatedly take others with it.
 */
const NEXT_SUSPECT = sql`(
  SELECT t.id FROM secret_order t
   WHERE ${OPEN} AND ${SUSPECT} AND ${NOT_HELD} AND ${NOT_POSTPONED}
     AND NOT EXISTS (SELECT FROM secret_order t WHERE ${OPEN} AND ${SUSPECT} AND t.lapsed_claims > 0 AND NOT ${NOT_HELD})
   ORDER BY t.lapsed_claims + (t.status = 'PROCESSING')::integer, t.created_at, t.id LIMIT 1)`

/** Wakes all lanes for the next suspect order, which may be in another lane or go to another worker. */
export async function wakeForNextSuspect(database: Database): Promise<void> {
  await execute(database, sql`SELECT pg_notify(${ORDER_CHANNEL}, lane) FROM unnest(${LANES}::text[]) AS lane`)
}

/** SQL: the order (alias t) is in this lane and due now. */
const dueIn = (lane: Lane): Fragment =>
  sql`${OPEN} AND t.lane = ${laneLiteral(lane)} AND ${NOT_POSTPONED} AND (NOT ${SUSPECT} OR t.id = ${NEXT_SUSPECT})`

/** Candidates beyond the limit, so that some are left when other workers claim the first ones at the same time. */
const SPARE_CANDIDATES = 32

/**
 * SQL for the candidates that DUE_ORDER sorts: the oldest orders of every project waiting in a lane, numbered after
 * those in progress. Finds project by project in the index, so that it does not read the long queue of one project.
 */
const candidatesIn = (lane: Lane, limit: number): Fragment => sql`
  WITH RECURSIVE project AS (
    (SELECT t.project_id AS id FROM secret_order t WHERE ${OPEN} AND t.lane = ${laneLiteral(lane)} ORDER BY t.project_id LIMIT 1)
    UNION ALL
    SELECT next.id FROM project p CROSS JOIN LATERAL (
      SELECT t.project_id AS id FROM secret_order t
       WHERE ${OPEN} AND t.lane = ${laneLiteral(lane)} AND t.project_id > p.id ORDER BY t.project_id LIMIT 1) next),
  most AS (SELECT ${limit + SPARE_CANDIDATES}::integer AS candidates)
  SELECT o.id, random() AS chance,
         row_number() OVER (PARTITION BY p.id ORDER BY o.created_at, o.id) + under_way.count AS turn
    FROM project p CROSS JOIN LATERAL (
      SELECT count(*) FROM secret_order t
       WHERE ${IN_PROGRESS} AND t.lane = ${laneLiteral(lane)} AND t.project_id = p.id) under_way
    CROSS JOIN LATERAL (
      SELECT t.id, t.created_at FROM secret_order t
       WHERE ${NOT_HELD} AND ${dueIn(lane)} AND t.project_id = p.id
       ORDER BY t.created_at, t.id LIMIT (SELECT candidates FROM most)) o
   ORDER BY turn, chance LIMIT (SELECT candidates FROM most)`

/**
 * The oldest order of each project first, and projects with fewer orders in progress before those with more. Among
 * equal projects each has the same chance, however many orders it has.
 */
const DUE_ORDER = sql`c.turn, c.chance`

/** How to claim orders of a lane. A claim counts the previous one if that never reported a result. */
export const claimsIn = (lane: Lane, owner: string): Omit<ClaimRequest, 'limit'> => ({
  ...{ table: 'secret_order', due: dueIn(lane), order: DUE_ORDER, owner },
  candidates: limit => candidatesIn(lane, limit),
  also: sql`status = 'PROCESSING', lapsed_claims = lapsed_claims + (status = 'PROCESSING')::integer`,
})

/**
 * Seconds until the next order of a lane becomes due by itself: at its retry time, or when a dead worker's lease
 * expires. Zero or less when one is due now, null without any. An order that waits for a suspect is woken when that
 * one is settled.
 */
export async function secondsUntilDue(database: Database, lane: Lane): Promise<number | null> {
  const { seconds } = await one(
    database,
    sql<{ seconds: number | null }>`
     SELECT extract(epoch FROM min(greatest(t.lease_until, t.retry_at)) - now())::float8 AS seconds
       FROM secret_order t WHERE ${OPEN} AND t.lane = ${lane} AND (${SUSPECT} OR t.retry_at IS NOT NULL)
        AND NOT (${SUSPECT} AND ${NOT_HELD} AND ${NOT_POSTPONED})`,
  )
  return seconds
}
