import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import type { Liveness } from './silence.js'

/**
 * Last heartbeats of all amphorae that have served and whose management network is that of a host, by the database's
 * clock. Those of other hosts show nothing about it. Omits amphorae younger than a minute: they
 * have not come back from a silence, so they are no evidence of one.
 */
export async function readLiveness(database: Database, hostId: string | null): Promise<Liveness[]> {
  return many(
    database,
    sql<Liveness>`
     SELECT a.id AS "amphoraId", lb.id AS "loadBalancerId", lb.project_id AS "projectId",
            extract(epoch FROM now() - h.last_seen)::float8 AS "silentSeconds",
            extract(epoch FROM now() - h.heard_since)::float8 AS "heardSinceSeconds"
       FROM amphora a
       JOIN load_balancer lb ON lb.id = a.load_balancer_id
       JOIN amphora_health h ON h.amphora_id = a.id
      WHERE a.status = 'ALLOCATED' AND (a.host_id IS NULL OR a.host_id = ${hostId}::uuid) AND a.applied_sha256 IS NOT NULL AND a.created_at < now() - interval '1 minute'`,
  )
}
