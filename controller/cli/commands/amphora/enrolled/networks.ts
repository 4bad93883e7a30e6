import type { KnownNetwork } from '../../../../compute/enrolled/enrolment/judge.js'
import { many } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import { type Instance, openDatabase } from '../../../wiring/instance.js'

/** Networks that lead out of this machine, so that a host can be on them, with their subnets. */
export async function knownNetworks(instance: Instance): Promise<KnownNetwork[]> {
  const database = openDatabase(instance, 'network', 'amphora')
  try {
    return await many(
      database,
      sql<KnownNetwork>`
        SELECT n.id, n.name, coalesce(array_agg(s.cidr::text) FILTER (WHERE s.id IS NOT NULL), '{}') AS cidrs
          FROM network n LEFT JOIN subnet s ON s.network_id = n.id
         WHERE n.network_type <> 'local' GROUP BY n.id ORDER BY n.created_at, n.id`,
    )
  } finally {
    await database.destroy()
  }
}
