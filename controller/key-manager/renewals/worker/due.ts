import type { Database } from '../../../database/connection.js'
import { one } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { type ClaimRequest, NOT_HELD } from '../../../queue/claim.js'

const DUE = sql`t.due_at IS NOT NULL AND t.due_at <= now()`

/** Candidates beyond the limit, for those that other workers claim at the same time. */
const SPARE_CANDIDATES = 32

/**
 * SQL for the due certificates to choose from: the oldest of every project, numbered after those in progress. Finds
 * project by project in the index, so that a project with many does not make the others wait.
 */
const candidates = (limit: number): Fragment => sql`
  WITH RECURSIVE project AS (
    (SELECT t.project_id AS id FROM certificate t WHERE t.due_at IS NOT NULL ORDER BY t.project_id LIMIT 1)
    UNION ALL
    SELECT next.id FROM project p CROSS JOIN LATERAL (
      SELECT t.project_id AS id FROM certificate t
       WHERE t.due_at IS NOT NULL AND t.project_id > p.id ORDER BY t.project_id LIMIT 1) next)
  SELECT o.id, random() AS chance,
         row_number() OVER (PARTITION BY p.id ORDER BY o.due_at, o.id) + under_way.count AS turn
    FROM project p CROSS JOIN LATERAL (
      SELECT count(*) FROM certificate t
       WHERE t.under_way AND t.project_id = p.id AND NOT ${NOT_HELD}) under_way
    CROSS JOIN LATERAL (
      SELECT t.id, t.due_at FROM certificate t WHERE ${NOT_HELD} AND ${DUE} AND t.project_id = p.id
       ORDER BY t.due_at, t.id LIMIT ${limit + SPARE_CANDIDATES}::integer) o
   ORDER BY turn, chance LIMIT ${limit + SPARE_CANDIDATES}::integer`

/** How to claim certificates. A claim counts the previous one if that never reported a result. */
export const certificateClaims = (owner: string): Omit<ClaimRequest, 'limit'> => ({
  ...{ table: 'certificate', due: DUE, order: sql`c.turn, c.chance`, owner },
  candidates,
  also: sql`under_way = true, lapsed_claims = lapsed_claims + under_way::integer`,
})

/** Seconds until the next certificate becomes due, or a dead worker's lease expires; null without any. */
export async function secondsUntilCertificateDue(database: Database): Promise<number | null> {
  const { seconds } = await one(
    database,
    sql<{ seconds: number | null }>`
      SELECT extract(epoch FROM min(greatest(t.lease_until, t.due_at)) - now())::float8 AS seconds
        FROM certificate t WHERE t.due_at IS NOT NULL`,
  )
  return seconds
}
