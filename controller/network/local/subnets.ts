import type { Knex } from 'knex'
import { execute, one } from '../../database/query.js'
import { insertion, json, sql } from '../../database/sql.js'
import { type AddressRange, spanOf } from '../addresses.js'

export type SubnetColumns = {
  network_id: string
  project_id: string
  name: string
  description?: string
  ip_version: 4 | 6
  /** Canonical, as parseCidr gives it. */
  cidr: string
  gateway_ip: string | null
  enable_dhcp?: boolean
  ipv6_ra_mode?: string | null
  ipv6_address_mode?: string | null
  dns_nameservers?: readonly string[]
  host_routes?: readonly { destination: string; nexthop: string }[]
}

/** Over an alias `subnet`: whether its addresses or a route of it (but a default route) overlap the management network. */
export const OVERLAPS_MANAGEMENT = sql`EXISTS (
  SELECT FROM network management JOIN subnet reserved ON reserved.network_id = management.id
   WHERE management.built_in = 'management'
     AND (reserved.cidr && subnet.cidr
          OR EXISTS (SELECT FROM jsonb_to_recordset(subnet.host_routes) AS route (destination cidr)
                      WHERE masklen(route.destination) > 0 AND route.destination && reserved.cidr)))`

/** Inserts a subnet with its allocation pools, all of which were checked before. @returns its id */
export async function insertSubnet(trx: Knex, columns: SubnetColumns, pools: readonly AddressRange[]): Promise<string> {
  const { dns_nameservers = [], host_routes = [], ...plain } = columns
  const row = { ...plain, dns_nameservers: json(dns_nameservers), host_routes: json(host_routes) }
  const { id } = await one(trx, sql<{ id: string }>`INSERT INTO subnet ${insertion([row])} RETURNING id`)
  await replacePools(trx, id, pools)
  return id
}

export async function replacePools(trx: Knex, subnetId: string, pools: readonly AddressRange[]): Promise<void> {
  await execute(trx, sql`DELETE FROM allocation_pool WHERE subnet_id = ${subnetId}`)
  if (pools.length === 0) return
  const rows = pools.map(pool => ({ subnet_id: subnetId, first: pool.start, last: pool.end, span: spanOf(pool) }))
  await execute(trx, sql`INSERT INTO allocation_pool ${insertion(rows)}`)
}
