import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { sql } from '../database/sql.js'

/**
 * Records for other controller hosts that this one has just heard amphorae of theirs.
 * @param heard ids of amphorae
 */
export async function recordHeardOfOthers(database: Database, hostId: string, heard: readonly string[]): Promise<void> {
  if (heard.length === 0) return
  await execute(
    database,
    sql`
     UPDATE controller_host SET amphorae_heard_at = now()
      WHERE id <> ${hostId} AND (amphorae_heard_at IS NULL OR amphorae_heard_at < now() - interval '1 second')
        AND EXISTS (SELECT FROM amphora WHERE amphora.host_id = controller_host.id AND amphora.id = ANY(${[...heard]}::uuid[]))`,
  )
}
