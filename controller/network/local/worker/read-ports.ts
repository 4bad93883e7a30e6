import type { Knex } from 'knex'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { interfaceOf } from '../names.js'
import type { GuardedInterface } from '../source-guard.js'

type PortRow = Omit<GuardedInterface, 'name'> & { id: string }

/**
 * What the ports with these interfaces may send from. Omits ports that do not exist.
 * @param names of the interfaces' ends in the fabric
 */
export async function readGuards(database: Knex, names: readonly string[]): Promise<GuardedInterface[]> {
  const rows = await many(
    database,
    sql<PortRow>`
      SELECT port.id, port.mac_address::text AS "macAddress", NOT port.port_security_enabled AS "isOpen",
             ARRAY(SELECT host(fixed_ip.address) FROM fixed_ip WHERE fixed_ip.port_id = port.id ORDER BY fixed_ip.ordinal)
               || port.allowed_addresses AS addresses,
             ARRAY(SELECT json_build_object('address', pair ->> 'ip_address', 'macAddress', pair ->> 'mac_address')
                     FROM jsonb_array_elements(port.allowed_address_pairs) AS pair) AS pairs
        FROM port WHERE 'p' || left(replace(port.id::text, '-', ''), 11) = ANY(${[...names]}::text[])`,
  )
  return rows.map(({ id, ...guard }) => ({ name: interfaceOf(id), ...guard }))
}

/** The IDs of all networks. */
export async function readNetworkIds(database: Knex): Promise<string[]> {
  const rows = await many(database, sql<{ id: string }>`SELECT id FROM network`)
  return rows.map(({ id }) => id)
}
