import type { Desired, DesiredRow, Holder } from '../../../ovn/northbound/desired.js'
import { rowUuid, switchUuid } from '../../../ovn/northbound/row-uuid.js'
import { defaultGateway, parseCidr } from '../../addresses.js'
import type { OvnNetwork, OvnPort, OvnSubnet } from './topology.js'

export const networkOwner = (id: string): string => `network/${id}`
export const portOwner = (id: string): string => `port/${id}`

/** Seconds. */
const LEASE = '86400'
/** OVN's place for what the host sends. */
const ISOLATION_PRIORITY = 1_000
/** Above the rules of security groups. */
const GUARD_PRIORITY = 32_000
const ICMPV6_REDIRECT = 137

const dhcpUuid = (instance: string, subnetId: string): string => rowUuid(instance, 'dhcp', subnetId)
const guardUuid = (instance: string, networkId: string): string => rowUuid(instance, 'guard', networkId)
/** Name of the group of the ports that are no routers and no DHCP servers. */
const guardedGroup = (networkId: string): string => `krater_guarded_${networkId.replaceAll('-', '')}`
/** Name of the group of the ports of an isolated network. A name is an identifier in ACLs. */
const isolatedGroup = (networkId: string): string => `krater_isolated_${networkId.replaceAll('-', '')}`

/** The rows of a network: its switch, DHCP, and the ports that are not machines'. */
export function networkRows(network: OvnNetwork, instance: string): Desired {
  const { id, mtu, physical, subnets, hostLeg } = network
  const uuid = switchUuid(instance, id)
  const held = [{ table: 'Logical_Switch', uuid, column: 'ports' }] as const
  const rows: DesiredRow[] = [
    {
      table: 'Logical_Switch',
      uuid,
      row: { name: `krater-${id}`, other_config: { mcast_snoop: 'false' }, external_ids: { 'krater:network': id } },
      heldBy: [],
    },
    ...subnets.flatMap(subnet => dhcpRow(subnet, network, instance)),
  ]
  if (physical !== null) {
    rows.push({
      table: 'Logical_Switch_Port',
      uuid: rowUuid(instance, 'uplink', id),
      row: {
        name: `krater-uplink-${id}`,
        type: 'localnet',
        addresses: ['unknown'],
        options: { network_name: physical.name },
        tag: physical.vlan,
      },
      heldBy: held,
    })
  }
  if (hostLeg !== null) {
    const addresses = [[hostLeg.macAddress, ...hostLeg.addresses].join(' ')]
    rows.push({
      table: 'Logical_Switch_Port',
      uuid: rowUuid(instance, 'host leg', id),
      // The host forwards what others send, so its port is open.
      row: {
        name: hostLeg.name,
        type: '',
        addresses: [...addresses, 'unknown'],
        options: { mtu_request: String(mtu) },
      },
      heldBy: held,
    })
  }
  return {
    ...{ owner: networkOwner(id), generation: 0 },
    rows: [...rows, ...guardRows(network, instance), ...isolationRows(network, instance)],
  }
}

/** Machines are no routers and no DHCP servers, unless their port is open. */
function guardRows({ id }: OvnNetwork, instance: string): DesiredRow[] {
  const uuid = guardUuid(instance, id)
  const group = guardedGroup(id)
  const pretences = ['nd_ra', `icmp6.type == ${ICMPV6_REDIRECT}`, 'ip4 && udp.dst == 68', 'ip6 && udp.dst == 546']
  return [
    { table: 'Port_Group', uuid, row: { name: group, external_ids: { 'krater:network': id } }, heldBy: [] },
    ...pretences.map(
      (match): DesiredRow => ({
        table: 'ACL',
        uuid: rowUuid(instance, 'guard rule', id, match),
        row: {
          direction: 'from-lport',
          priority: GUARD_PRIORITY,
          match: `inport == @${group} && ${match}`,
          action: 'drop',
          external_ids: { 'krater:network': id },
        },
        heldBy: [{ table: 'Port_Group', uuid, column: 'acls' }],
      }),
    ),
  ]
}

function isolationRows({ id, isolated, hostLeg }: OvnNetwork, instance: string): DesiredRow[] {
  if (!isolated || hostLeg === null) return []
  const uuid = rowUuid(instance, 'isolation', id)
  const group = isolatedGroup(id)
  return [
    { table: 'Port_Group', uuid, row: { name: group, external_ids: { 'krater:network': id } }, heldBy: [] },
    {
      table: 'ACL',
      uuid: rowUuid(instance, 'isolation rule', id),
      row: {
        direction: 'to-lport',
        priority: ISOLATION_PRIORITY,
        match: `outport == @${group} && eth.src != ${hostLeg.macAddress}`,
        action: 'drop',
        external_ids: { 'krater:network': id },
      },
      heldBy: [{ table: 'Port_Group', uuid, column: 'acls' }],
    },
  ]
}

function dhcpRow(subnet: OvnSubnet, { mtu }: OvnNetwork, instance: string): DesiredRow[] {
  const { id, cidr, ipVersion, gatewayIp, enableDhcp, dnsNameservers, hostRoutes, ipv6AddressMode } = subnet
  if (!enableDhcp || (ipVersion === 6 && (ipv6AddressMode === null || ipv6AddressMode === 'slaac'))) return []
  const serverMac = serverMacOf(id)
  const list = (values: readonly string[]) => `{${values.join(', ')}}`
  const resolvers: Record<string, string> = dnsNameservers.length === 0 ? {} : { dns_server: list(dnsNameservers) }
  const routes = [
    ...hostRoutes.map(({ destination, nexthop }) => `${destination},${nexthop}`),
    ...(gatewayIp === null ? [] : [`0.0.0.0/0,${gatewayIp}`]),
  ]
  const options: Record<string, string> =
    ipVersion === 4
      ? {
          lease_time: LEASE,
          mtu: String(mtu),
          ...resolvers,
          ...(gatewayIp === null ? {} : { router: gatewayIp }),
          // A client that takes them ignores the router (RFC 3442).
          ...(hostRoutes.length === 0 ? {} : { classless_static_route: list(routes) }),
          server_id: gatewayIp ?? firstHostOf(cidr),
          server_mac: serverMac,
        }
      : {
          ...resolvers,
          server_id: serverMac,
          ...(ipv6AddressMode === 'dhcpv6-stateless' ? { dhcpv6_stateless: 'true' } : {}),
        }
  return [
    {
      table: 'DHCP_Options',
      uuid: dhcpUuid(instance, id),
      row: { cidr, options: sortedKeys(options), external_ids: { 'krater:subnet': id } },
      heldBy: [],
    },
  ]
}

/**
 * The row of a port, on its network's switch.
 * @param holders of a filtered port, besides the switch
 */
export function portRows(port: OvnPort, network: OvnNetwork, instance: string, holders: readonly Holder[]): Desired {
  const { id, networkId, role } = port
  const isolation: Holder = { table: 'Port_Group', uuid: rowUuid(instance, 'isolation', networkId), column: 'ports' }
  const guard: Holder = { table: 'Port_Group', uuid: guardUuid(instance, networkId), column: 'ports' }
  const others = [...holders, ...(network.isolated ? [isolation] : []), ...(port.isOpen ? [] : [guard])]
  // That of the balancer router belongs to it.
  const rows = role === 'machine' ? [machineRow(port, network, instance)] : []
  return {
    owner: portOwner(id),
    generation: 0,
    rows: rows.map((row): DesiredRow => ({ ...row, heldBy: [...row.heldBy, ...others] })),
  }
}

function machineRow(port: OvnPort, { subnets }: OvnNetwork, instance: string): DesiredRow {
  const { id, networkId, macAddress, addresses, allowedAddresses, pairs, isOpen, adminStateUp } = port
  const own = addresses.map(({ address }) => address)
  const dhcpOf = (version: 4 | 6): string | null => {
    const subnet = subnets.find(
      one => one.ipVersion === version && addresses.some(({ subnetId }) => subnetId === one.id) && servesDhcp(one),
    )
    return subnet === undefined ? null : dhcpUuid(instance, subnet.id)
  }
  const others = pairs.map(pair => `${pair.macAddress} ${pair.address}`)
  return {
    table: 'Logical_Switch_Port',
    uuid: rowUuid(instance, 'port', id),
    row: {
      name: id,
      type: '',
      // `unknown` also lets in what is for addresses that it may hold: VIPs, and those of its pairs.
      addresses: [
        [macAddress, ...own].join(' '),
        ...(isOpen || allowedAddresses.length > 0 || pairs.length > 0 ? ['unknown'] : []),
      ].sort(),
      port_security: isOpen
        ? []
        : [...new Set([[macAddress, ...new Set([...own, ...allowedAddresses])].join(' '), ...others])].sort(),
      enabled: adminStateUp,
      dhcpv4_options: dhcpOf(4),
      dhcpv6_options: dhcpOf(6),
      external_ids: { 'krater:port': id },
    },
    heldBy: [{ table: 'Logical_Switch', uuid: switchUuid(instance, networkId), column: 'ports' }],
  }
}

const servesDhcp = ({ enableDhcp, ipVersion, ipv6AddressMode }: OvnSubnet): boolean =>
  enableDhcp && (ipVersion === 4 || (ipv6AddressMode !== null && ipv6AddressMode !== 'slaac'))

const serverMacOf = (subnetId: string): string =>
  `06:${subnetId
    .replaceAll('-', '')
    .slice(0, 10)
    .replace(/(..)(?=.)/g, '$1:')}`

/** A name for the server, which has no address. A client cannot send to the address of the subnet itself. */
const firstHostOf = (cidr: string): string => {
  const parsed = parseCidr(cidr)
  return parsed === null ? cidr : defaultGateway(parsed)
}

const sortedKeys = (record: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1)))
