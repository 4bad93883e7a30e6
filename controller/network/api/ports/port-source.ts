import { and, type Fragment, sql } from '../../../database/sql.js'
import { normaliseAddress } from '../../addresses.js'
import { FIXED_IPS } from '../../local/ports.js'
import { isUuid, visiblePorts } from '../../visibility.js'
import { invalidRequest } from '../neutron-error.js'
import { type CommonRow, commonColumns, commonFilters, type Item, presentCommon } from '../resource.js'
import { type Source, tagFilters } from '../select.js'
import type { AddressPair } from './address-pairs.js'

export type PortRow = CommonRow & {
  network_id: string
  network_project_id: string
  network_built_in: string | null
  admin_state_up: boolean
  mac_address: string
  device_id: string
  device_owner: string
  status: string
  fixed_ips: { subnet_id: string; ip_address: string }[]
  allowed_addresses: string[]
  allowed_address_pairs: AddressPair[]
  security_groups: string[]
  port_security_enabled: boolean
  filtered: boolean
}

/** Active if a device uses the port and its owner has not disabled it. */
export const PORT_STATUS = sql`(CASE WHEN port.device_id <> '' AND port.admin_state_up THEN 'ACTIVE' ELSE 'DOWN' END)`

export const portSource: Source<PortRow> & { kind: 'port' } = {
  kind: 'port',
  table: 'port',
  select: sql<PortRow>`${commonColumns('port')}, port.network_id, network.project_id AS network_project_id, network.built_in AS network_built_in, port.admin_state_up,
    port.mac_address::text AS mac_address, port.device_id, port.device_owner, port.allowed_addresses,
    port.allowed_address_pairs, port.port_security_enabled, port.filtered, ${PORT_STATUS} AS status, ${FIXED_IPS} AS fixed_ips,
    ARRAY(SELECT security_group_id FROM port_security_group WHERE port_id = port.id ORDER BY security_group_id) AS security_groups`,
  from: sql`port JOIN network ON network.id = port.network_id`,
  visible: visiblePorts,
  columns: {
    ...commonFilters('port'),
    network_id: { sql: sql`port.network_id`, kind: 'uuid' },
    admin_state_up: { sql: sql`port.admin_state_up`, kind: 'boolean' },
    mac_address: { sql: sql`port.mac_address`, kind: 'mac' },
    device_id: { sql: sql`port.device_id`, kind: 'text' },
    device_owner: { sql: sql`port.device_owner`, kind: 'text' },
    status: { sql: PORT_STATUS, kind: 'text' },
    port_security_enabled: { sql: sql`port.port_security_enabled`, kind: 'boolean' },
    'binding:vnic_type': { constant: 'normal' },
    'binding:host_id': { constant: null },
  },
  filters: {
    ...tagFilters('port'),
    fixed_ips: fixedIpsFilter,
    security_groups: groupsFilter,
    security_group_ids: groupsFilter,
    ip_address: values => fixedIpsFilter(values.map(value => `ip_address=${value}`)),
    subnet_id: values => fixedIpsFilter(values.map(value => `subnet_id=${value}`)),
  },
}

/** Ports with one of these groups. */
function groupsFilter(ids: readonly string[]): Fragment {
  return sql`EXISTS (SELECT 1 FROM port_security_group
                      WHERE port_id = port.id AND security_group_id = ANY(${ids.filter(isUuid)}::uuid[]))`
}

/** `subnet_id=...` and `ip_address=...`: one address of the port must match one value of each key. */
function fixedIpsFilter(values: readonly string[]): Fragment {
  const given: Record<'subnet_id' | 'ip_address' | 'ip_address_substr', string[]> = {
    subnet_id: [],
    ip_address: [],
    ip_address_substr: [],
  }
  for (const value of values) {
    const [key = '', ...rest] = value.split('=')
    if (!Object.hasOwn(given, key)) throw invalidRequest(`'${value}' is an invalid fixed_ips filter`)
    given[key as keyof typeof given].push(rest.join('='))
  }
  const { subnet_id: subnets, ip_address, ip_address_substr } = given
  const addresses = ip_address.map(normaliseAddress).filter(address => address !== null)
  const parts = ip_address_substr.filter(part => /^[0-9a-fA-F.:]+$/.test(part))
  const conditions = [
    sql`fixed_ip.port_id = port.id`,
    ...(subnets.length > 0 ? [sql`fixed_ip.subnet_id = ANY(${subnets.filter(isUuid)}::uuid[])`] : []),
    ...(ip_address.length > 0 ? [sql`fixed_ip.address = ANY(${addresses}::inet[])`] : []),
    ...(ip_address_substr.length > 0
      ? [sql`EXISTS (SELECT 1 FROM unnest(${parts}::text[]) part WHERE position(part IN host(fixed_ip.address)) > 0)`]
      : []),
  ]
  return sql`EXISTS (SELECT 1 FROM fixed_ip WHERE ${and(conditions)})`
}

export const presentPort = (row: PortRow): Item => ({
  ...presentCommon(row),
  network_id: row.network_id,
  admin_state_up: row.admin_state_up,
  status: row.status,
  mac_address: row.mac_address,
  device_id: row.device_id,
  device_owner: row.device_owner,
  fixed_ips: row.fixed_ips,
  security_groups: row.security_groups,
  port_security_enabled: row.port_security_enabled,
  allowed_address_pairs: [
    ...row.allowed_addresses.map(ip_address => ({ ip_address, mac_address: row.mac_address })),
    ...row.allowed_address_pairs,
  ],
  extra_dhcp_opts: [],
  'binding:vnic_type': 'normal',
})
