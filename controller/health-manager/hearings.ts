import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import type { Hearing } from './silence.js'

/** When each amphora that once served was heard, by the database's clock. New ones have not come back from anywhere, so they say nothing yet. */
export async function readHearings(database: Database): Promise<Hearing[]> {
  return many(
    database,
    sql<Hearing>`
     SELECT a.id AS "amphoraId", lb.id AS "loadBalancerId", lb.project_id AS "projectId",
            extract(epoch FROM now() - h.last_seen)::float8 AS "silentSeconds",
            extract(epoch FROM now() - h.heard_since)::float8 AS "heardSinceSeconds"
       FROM amphora a
       JOIN load_balancer lb ON lb.id = a.load_balancer_id
       JOIN amphora_health h ON h.amphora_id = a.id
      WHERE a.status = 'ALLOCATED' AND a.applied_sha256 IS NOT NULL AND a.created_at < now() - interval '1 minute'`,
  )
}
