import type { Knex } from 'knex'
import { execute, many, one } from '../../database/query.js'
import { insertion, json, sql } from '../../database/sql.js'
import { type AddressRange, poolSpan } from '../addresses.js'

export type SubnetColumns = {
  network_id: string
  project_id: string
  name: string
  description?: string
  ip_version: 4 | 6
  /** Canonical, as parseCidr returns it. */
  cidr: string
  gateway_ip: string | null
  enable_dhcp?: boolean
  ipv6_ra_mode?: string | null
  ipv6_address_mode?: string | null
  dns_nameservers?: readonly string[]
  host_routes?: readonly { destination: string; nexthop: string }[]
}

/** Whether the CIDR or a host route (other than a default route) of alias `subnet` overlaps the management network. */
export const OVERLAPS_MANAGEMENT = sql`EXISTS (
  SELECT FROM network management JOIN subnet reserved ON reserved.network_id = management.id
   WHERE management.built_in = 'management'
     AND (reserved.cidr && subnet.cidr
          OR EXISTS (SELECT FROM jsonb_to_recordset(subnet.host_routes) AS route (destination cidr)
                      WHERE masklen(route.destination) > 0 AND route.destination && reserved.cidr)))`

/** Inserts a subnet with its allocation pools. The caller has validated both. @returns its ID */
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
  const rows = pools.map(pool => ({ subnet_id: subnetId, first: pool.start, last: pool.end, span: poolSpan(pool) }))
  await execute(trx, sql`INSERT INTO allocation_pool ${insertion(rows)}`)
}

export type SubnetFacts = {
  id: string
  network_id: string
  network_project_id: string
  shared: boolean
  /** Its network is a LAN, where machines that Krater does not know have addresses. */
  on_lan: boolean
  cidr: string
  gateway_ip: string | null
}

/** What placing an address needs to know about subnets, by ID. Locks them against deletion; omits missing ones. */
export async function subnetFacts(trx: Knex, ids: readonly string[]): Promise<Map<string, SubnetFacts>> {
  const rows = await many(
    trx,
    sql<SubnetFacts>`
      SELECT subnet.id, subnet.network_id, network.project_id AS network_project_id, network.shared,
             network.network_type <> 'local' AS on_lan, subnet.cidr::text AS cidr, host(subnet.gateway_ip) AS gateway_ip
        FROM subnet JOIN network ON network.id = subnet.network_id
       WHERE subnet.id = ANY(${ids}::uuid[]) FOR KEY SHARE OF subnet`,
  )
  return new Map(rows.map(row => [row.id, row]))
}
