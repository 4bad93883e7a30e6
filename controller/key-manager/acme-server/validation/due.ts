import type { Database } from '../../../database/connection.js'
import { one } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { type ClaimRequest, NOT_HELD } from '../../../queue/claim.js'

/** Validations of one project at a time: a slow one delays only others of its project. */
export const MAX_PER_PROJECT = 3

const WAITING = sql`t.status = 'processing'`
const DUE = sql`${WAITING} AND (t.retry_at IS NULL OR t.retry_at <= now())`

/**
 * SQL of the challenges to choose from: the oldest of each project, as many as it may still have in progress. Finds
 * project by project in the index.
 */
const candidates = (limit: number): Fragment => sql`
  WITH RECURSIVE project AS (
    (SELECT t.project_id AS id FROM acme_challenge t WHERE ${WAITING} ORDER BY t.project_id LIMIT 1)
    UNION ALL
    SELECT next.id FROM project p CROSS JOIN LATERAL (
      SELECT t.project_id AS id FROM acme_challenge t WHERE ${WAITING} AND t.project_id > p.id ORDER BY t.project_id LIMIT 1) next)
  SELECT w.id, random() AS chance, row_number() OVER (PARTITION BY p.id ORDER BY w.responded_at, w.id) + under_way.count AS turn
    FROM project p CROSS JOIN LATERAL (
      SELECT count(*) FROM acme_challenge t WHERE ${WAITING} AND NOT ${NOT_HELD} AND t.project_id = p.id) under_way
    CROSS JOIN LATERAL (
      SELECT t.id, t.responded_at FROM acme_challenge t
       WHERE ${NOT_HELD} AND ${DUE} AND t.project_id = p.id
       ORDER BY t.responded_at, t.id LIMIT greatest(0, ${MAX_PER_PROJECT} - under_way.count)) w
   ORDER BY turn, chance LIMIT ${limit}`

/** How to claim challenges: projects take turns. */
export const claimsFor = (owner: string): Omit<ClaimRequest, 'limit'> => ({
  ...{ table: 'acme_challenge', due: DUE, order: sql`c.turn, c.chance`, owner, candidates },
})

/** Seconds until the next challenge becomes due by itself; null without any. */
export async function secondsUntilDue(database: Database): Promise<number | null> {
  const { seconds } = await one(
    database,
    sql<{ seconds: number | null }>`
      SELECT extract(epoch FROM min(greatest(t.lease_until, t.retry_at)) - now())::float8 AS seconds
        FROM acme_challenge t WHERE ${WAITING} AND (t.lease_until IS NOT NULL OR t.retry_at IS NOT NULL)`,
  )
  return seconds
}
