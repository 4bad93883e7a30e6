import type { Database } from '../../database/connection.js'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { ROUTER_PORT_OWNER } from '../../network/driver.js'
import { isUuid } from '../../network/visibility.js'

/** What has changed around addresses. */
export type Surrounding = { kind: 'network'; id: string } | { kind: 'address'; address: string }

/** @returns what a notification tells; null if anything may have changed */
export function surroundingOf(payload: string | null): Surrounding | null {
  const [kind, value = ''] = (payload ?? '').split(' ')
  if (kind === 'network' && isUuid(value)) return { kind, id: value }
  if (kind === 'address' && value !== '') return { kind, address: value }
  return null
}

/**
 * Networks whose VIPs a change of others may concern: those from which `readSurroundings` may reach one that changed.
 * It walks back from these, and through no shared network to other projects, which never depend on each other there.
 */
export async function networksConcerned(database: Database, changed: readonly string[]): Promise<string[]> {
  const found = await many(
    database,
    sql<{ id: string }>`
      WITH RECURSIVE concerned (id, project_id, shared, is_way) AS (
        SELECT id, project_id, shared, true FROM network WHERE id = ANY(${[...changed]}::uuid[])
        UNION
        SELECT near.id, near.project_id, near.shared, NOT near.shared FROM concerned
          JOIN port far_port ON far_port.network_id = concerned.id AND far_port.device_owner = ${ROUTER_PORT_OWNER.interface}
          JOIN router_port far_leg ON far_leg.port_id = far_port.id AND NOT far_leg.gateway
          JOIN router_port near_leg ON near_leg.router_id = far_leg.router_id AND NOT near_leg.gateway
          JOIN port near_port ON near_port.id = near_leg.port_id
          JOIN network near ON near.id = near_port.network_id
         WHERE concerned.is_way AND (NOT concerned.shared OR near.project_id = concerned.project_id)
      )
      SELECT DISTINCT id::text AS id FROM concerned`,
  )
  return found.map(({ id }) => id)
}
