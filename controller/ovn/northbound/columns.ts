import type { Tables } from '../../ovsdb/columns.js'

/** The tables and columns of OVN's northbound database that Krater reads and writes (ovn-nb(5)). */
export const NORTHBOUND = {
  NB_Global: {
    ...{ nb_cfg: 'integer', options: 'map', external_ids: 'map' },
  },
  Logical_Switch: {
    ...{ name: 'text', ports: 'uuids', acls: 'uuids', load_balancer: 'uuids' },
    ...{ other_config: 'map', external_ids: 'map' },
  },
  Logical_Switch_Port: {
    ...{ name: 'text', type: 'text', addresses: 'texts', port_security: 'texts', options: 'map' },
    ...{ enabled: 'optional boolean', tag: 'optional integer' },
    ...{ dhcpv4_options: 'optional uuid', dhcpv6_options: 'optional uuid', external_ids: 'map' },
  },
  Port_Group: { name: 'text', ports: 'uuids', acls: 'uuids', external_ids: 'map' },
  Address_Set: { name: 'text', addresses: 'texts', external_ids: 'map' },
  ACL: {
    ...{ direction: 'text', priority: 'integer', match: 'text', action: 'text' },
    external_ids: 'map',
  },
  DHCP_Options: { cidr: 'text', options: 'map', external_ids: 'map' },
  Logical_Router: {
    ...{ name: 'text', ports: 'uuids', static_routes: 'uuids', nat: 'uuids', load_balancer: 'uuids' },
    ...{ enabled: 'optional boolean', options: 'map', external_ids: 'map' },
  },
  Logical_Router_Port: {
    ...{ name: 'text', mac: 'text', networks: 'texts', options: 'map', gateway_chassis: 'uuids' },
    ...{ ipv6_ra_configs: 'map', external_ids: 'map' },
  },
  Logical_Router_Static_Route: {
    ...{ ip_prefix: 'text', nexthop: 'text', output_port: 'optional text', options: 'map', external_ids: 'map' },
  },
  NAT: {
    ...{ type: 'text', external_ip: 'text', logical_ip: 'text', external_mac: 'optional text' },
    ...{ logical_port: 'optional text', options: 'map', external_ids: 'map' },
  },
  Gateway_Chassis: { name: 'text', chassis_name: 'text', priority: 'integer', external_ids: 'map' },
  Load_Balancer: {
    ...{ name: 'text', vips: 'map', protocol: 'optional text', selection_fields: 'texts' },
    ...{ ip_port_mappings: 'map', health_check: 'uuids', options: 'map', external_ids: 'map' },
  },
  Load_Balancer_Health_Check: { vip: 'text', options: 'map', external_ids: 'map' },
} as const satisfies Tables

export type Northbound = typeof NORTHBOUND
export type NorthboundTable = keyof Northbound

/** Which columns of which tables hold rows of which table. */
export const REFERENCES = {
  Logical_Switch: {
    ports: 'Logical_Switch_Port',
    acls: 'ACL',
    load_balancer: 'Load_Balancer',
  },
  Port_Group: { ports: 'Logical_Switch_Port', acls: 'ACL' },
  Logical_Router: {
    ports: 'Logical_Router_Port',
    static_routes: 'Logical_Router_Static_Route',
    nat: 'NAT',
    load_balancer: 'Load_Balancer',
  },
  Logical_Router_Port: { gateway_chassis: 'Gateway_Chassis' },
  Load_Balancer: { health_check: 'Load_Balancer_Health_Check' },
} as const

/** Rows of the other tables are deleted by the server as soon as no row holds them. */
export const ROOTS: ReadonlySet<NorthboundTable> = new Set([
  ...(['NB_Global', 'Logical_Switch', 'Port_Group', 'Address_Set', 'DHCP_Options', 'Logical_Router'] as const),
  'Load_Balancer',
])

/** Whether a row lives as long as this place holds it. Other places hold any row, and lose it when it is deleted. */
export const keepsAlive = (table: NorthboundTable, column: string): boolean =>
  column !== 'load_balancer' && !(table === 'Port_Group' && column === 'ports')
