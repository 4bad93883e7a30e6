import type { Knex } from 'knex'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { ProviderNetwork } from './plan.js'

/** The networks that lead to a physical network, with the MAC addresses of their ports. */
export async function providerNetworks(database: Knex): Promise<ProviderNetwork[]> {
  type Row = {
    id: string
    mtu: number
    physical_network: string
    segmentation_id: number | null
    mac_addresses: string[]
  }
  const rows = await many(
    database,
    sql<Row>`
      SELECT network.id, network.mtu, network.physical_network, network.segmentation_id,
             ARRAY(SELECT port.mac_address::text FROM port WHERE port.network_id = network.id ORDER BY 1) AS mac_addresses
        FROM network WHERE network.network_type <> 'local' ORDER BY network.created_at, network.id`,
  )
  return rows.map(row => ({
    id: row.id,
    mtu: row.mtu,
    physicalNetwork: row.physical_network,
    segmentationId: row.segmentation_id,
    macAddresses: row.mac_addresses,
  }))
}
