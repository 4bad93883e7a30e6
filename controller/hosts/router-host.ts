import type { Database } from '../database/connection.js'
import { maybeOne } from '../database/query.js'
import { sql } from '../database/sql.js'

/**
 * Whether this host is the one that has the routers whose networks span hosts: two would claim their addresses at the
 * same time. The first that asks gets them and keeps them, whether its processes run or not, for the kernel goes on
 * forwarding. Another host gets them only once it is gone.
 */
export async function hasSpanningRouters(database: Database, hostId: string): Promise<boolean> {
  const row = await maybeOne(
    database,
    sql`
     INSERT INTO router_host (host_id) SELECT id FROM controller_host WHERE id = ${hostId} AND gone_at IS NULL
     ON CONFLICT (only_one) DO UPDATE
        SET host_id = excluded.host_id,
            since = CASE WHEN router_host.host_id = excluded.host_id THEN router_host.since ELSE now() END
      WHERE router_host.host_id = excluded.host_id
         OR router_host.host_id IN (SELECT id FROM controller_host WHERE gone_at IS NOT NULL)
     RETURNING host_id`,
  )
  return row !== undefined
}
