import type { Knex } from 'knex'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { PORT_OWNER, ROUTER_PORT_OWNERS } from '../driver.js'
import type { OvnPort, OvnSubnet } from './rows/topology.js'

/** A network as the tables have it. */
export type StoredNetwork = {
  id: string
  mtu: number
  physical: { name: string; vlan: number | null } | null
  subnets: OvnSubnet[]
  builtIn: string | null
}

/** Every network that is administratively up, one statement for all. */
export function readNetworks(database: Knex): Promise<StoredNetwork[]> {
  return many(
    database,
    sql<StoredNetwork>`
      SELECT network.id, network.mtu, network.built_in AS "builtIn",
             CASE WHEN network.network_type <> 'local'
                  THEN json_build_object('name', network.physical_network, 'vlan', network.segmentation_id)
              END AS physical,
             coalesce((
               SELECT json_agg(json_build_object(
                        'id', subnet.id, 'cidr', subnet.cidr::text, 'ipVersion', subnet.ip_version,
                        'gatewayIp', host(subnet.gateway_ip), 'enableDhcp', subnet.enable_dhcp,
                        'ipv6AddressMode', subnet.ipv6_address_mode, 'ipv6RaMode', subnet.ipv6_ra_mode,
                        'dnsNameservers', subnet.dns_nameservers, 'hostRoutes', subnet.host_routes)
                      ORDER BY subnet.created_at, subnet.id)
                 FROM subnet WHERE subnet.network_id = network.id), '[]') AS subnets
        FROM network WHERE network.admin_state_up ORDER BY network.created_at, network.id`,
  )
}

/**
 * Every port with rows of its own, one statement for all. VIPs, floating IPs and sources of probes have none, however
 * many there are; the legs of routers belong to their router.
 */
export function readPorts(database: Knex): Promise<OvnPort[]> {
  const others = [PORT_OWNER.vip, PORT_OWNER.probe, ...ROUTER_PORT_OWNERS]
  return many(
    database,
    sql<OvnPort>`
      SELECT port.id, port.network_id AS "networkId", port.mac_address::text AS "macAddress",
             port.admin_state_up AS "adminStateUp", NOT port.port_security_enabled AS "isOpen",
             port.allowed_addresses AS "allowedAddresses",
             CASE WHEN port.device_owner = ${PORT_OWNER.balancer} THEN 'balancer' ELSE 'machine' END AS role,
             coalesce((
               SELECT json_agg(json_build_object('address', host(fixed_ip.address), 'subnetId', fixed_ip.subnet_id)
                               ORDER BY fixed_ip.ordinal)
                 FROM fixed_ip WHERE fixed_ip.port_id = port.id), '[]') AS addresses,
             coalesce((
               SELECT json_agg(json_build_object('address', pair ->> 'ip_address', 'macAddress', pair ->> 'mac_address'))
                 FROM jsonb_array_elements(port.allowed_address_pairs) AS pair), '[]') AS pairs
        FROM port WHERE port.device_owner <> ALL(${others}::text[]) ORDER BY port.created_at, port.id`,
  )
}
