import t from 'tap'
import type { Router } from '../../../../controller/network/local/routers/router.js'
import type { Filters } from '../../../../controller/network/local/security-groups/filters.js'
import { balancerRows } from '../../../../controller/network/ovn/rows/balancer-rows.js'
import { routerRows } from '../../../../controller/network/ovn/rows/router-rows.js'
import { filterHolders, securityRows } from '../../../../controller/network/ovn/rows/security-rows.js'
import { networkRows, portRows } from '../../../../controller/network/ovn/rows/switch-rows.js'
import type { OvnNetwork, OvnPort, OvnSubnet } from '../../../../controller/network/ovn/rows/topology.js'
import type { Desired, DesiredRow } from '../../../../controller/ovn/northbound/desired.js'
import { rowUuid } from '../../../../controller/ovn/northbound/row-uuid.js'
import { uuid } from '../../../golden/models.js'

const INSTANCE = 'abcdef'
const NETWORK = uuid(8, 1)

const subnet = (change: Partial<OvnSubnet> = {}): OvnSubnet => ({
  ...{ id: uuid(7, 1), cidr: '192.0.2.0/24', ipVersion: 4, gatewayIp: '192.0.2.1', enableDhcp: true },
  ...{ ipv6AddressMode: null, ipv6RaMode: null, dnsNameservers: [], hostRoutes: [] },
  ...change,
})
const subnet6 = (change: Partial<OvnSubnet> = {}) =>
  subnet({ id: uuid(7, 2), cidr: '2001:db8::/64', ipVersion: 6, gatewayIp: '2001:db8::1', ...change })
const network = (change: Partial<OvnNetwork> = {}): OvnNetwork => ({
  ...{ id: NETWORK, mtu: 1442, physical: null, subnets: [subnet(), subnet6()], hostLeg: null, isolated: false },
  ...change,
})
const port = (change: Partial<OvnPort> = {}): OvnPort => ({
  ...{ id: uuid(9, 1), networkId: NETWORK, macAddress: 'fa:16:3e:00:00:01', isOpen: false, adminStateUp: true },
  addresses: [
    { address: '192.0.2.5', subnetId: uuid(7, 1) },
    { address: '2001:db8::5', subnetId: uuid(7, 2) },
  ],
  ...{ allowedAddresses: [], pairs: [], role: 'machine' },
  ...change,
})

type Of<T extends DesiredRow['table']> = Extract<DesiredRow, { table: T }>
const rowsOf = <T extends DesiredRow['table']>({ rows }: Desired, table: T): Of<T>[] =>
  rows.filter((row): row is Of<T> => row.table === table)

t.test('a network is a switch, with DHCP for its IPv4 subnets', async t => {
  const desired = networkRows(network(), INSTANCE)
  t.match(
    rowsOf(desired, 'Logical_Switch').map(({ uuid, row }) => [uuid, row.name]),
    [[rowUuid(INSTANCE, 'network', NETWORK), `krater-${NETWORK}`]],
  )
  const [dhcp, ...others] = rowsOf(desired, 'DHCP_Options')
  t.same(others, [], 'SLAAC and static addresses need none')
  t.match(dhcp?.row, { cidr: '192.0.2.0/24', options: { router: '192.0.2.1', mtu: '1442', server_id: '192.0.2.1' } })
})

t.test('host routes come with a default route, since clients then ignore the router', async t => {
  const hostRoutes = [{ destination: '198.51.100.0/24', nexthop: '192.0.2.9' }]
  const [dhcp] = rowsOf(networkRows(network({ subnets: [subnet({ hostRoutes })] }), INSTANCE), 'DHCP_Options')
  t.equal(dhcp?.row.options?.['classless_static_route'], '{198.51.100.0/24,192.0.2.9, 0.0.0.0/0,192.0.2.1}')
})

t.test('a subnet without DHCP has none', async t => {
  t.same(rowsOf(networkRows(network({ subnets: [subnet({ enableDhcp: false })] }), INSTANCE), 'DHCP_Options'), [])
})

t.test('a physical network leaves OVN by a port of its own', async t => {
  const ports = rowsOf(networkRows(network({ physical: { name: 'lan', vlan: 7 } }), INSTANCE), 'Logical_Switch_Port')
  t.match(
    ports.map(({ row }) => row),
    [{ type: 'localnet', options: { network_name: 'lan' }, tag: 7 }],
  )
})

t.test('on an isolated network, machines reach the host alone', async t => {
  const hostLeg = { name: 'krabcdef-mgmt', macAddress: '02:00:00:00:00:01', addresses: ['192.0.2.1'] }
  const desired = networkRows(network({ isolated: true, hostLeg }), INSTANCE)
  const rule = rowsOf(desired, 'ACL').find(({ row }) => row.direction === 'to-lport')
  const group = rowsOf(desired, 'Port_Group').find(({ row }) => rule?.row.match?.includes(`@${row.name}`))
  t.match(rule?.row, { direction: 'to-lport', action: 'drop' })
  t.equal(rule?.row.match, `outport == @${group?.row.name} && eth.src != 02:00:00:00:00:01`)
  const held = portRows(port(), network({ isolated: true, hostLeg }), INSTANCE, []).rows[0]?.heldBy ?? []
  t.ok(held.some(holder => holder.uuid === group?.uuid && holder.column === 'ports'))
})

t.test('machines are no routers and no DHCP servers, unless their port is open', async t => {
  const desired = networkRows(network(), INSTANCE)
  const [group] = rowsOf(desired, 'Port_Group')
  t.same(
    rowsOf(desired, 'ACL').map(({ row: { direction, action, match } }) => [direction, action, match]),
    ['nd_ra', 'icmp6.type == 137', 'ip4 && udp.dst == 68', 'ip6 && udp.dst == 546'].map(match => [
      'from-lport',
      'drop',
      `inport == @${group?.row.name} && ${match}`,
    ]),
  )
  const isGuarded = (isOpen: boolean) =>
    portRows(port({ isOpen }), network(), INSTANCE, []).rows[0]?.heldBy.some(({ uuid }) => uuid === group?.uuid)
  t.equal(isGuarded(false), true)
  t.equal(isGuarded(true), false)
})

t.test('a machine’s port has its addresses, and may send from no others', async t => {
  const [row] = rowsOf(portRows(port(), network(), INSTANCE, []), 'Logical_Switch_Port')
  t.same(row?.row.addresses, ['fa:16:3e:00:00:01 192.0.2.5 2001:db8::5'])
  t.same(row?.row.port_security, ['fa:16:3e:00:00:01 192.0.2.5 2001:db8::5'])
  t.equal(row?.row.dhcpv4_options, rowUuid(INSTANCE, 'dhcp', uuid(7, 1)))
  t.equal(row?.row.dhcpv6_options, null)
})

t.test('VIPs that may move to a port, and its pairs, are let through', async t => {
  const pairs = [{ address: '192.0.2.128/25', macAddress: 'fa:16:3e:00:00:02' }]
  const [row] = rowsOf(
    portRows(port({ allowedAddresses: ['192.0.2.9'], pairs }), network(), INSTANCE, []),
    'Logical_Switch_Port',
  )
  t.same(row?.row.port_security, [
    'fa:16:3e:00:00:01 192.0.2.5 2001:db8::5 192.0.2.9',
    'fa:16:3e:00:00:02 192.0.2.128/25',
  ])
  t.ok(row?.row.addresses?.includes('unknown'))
})

t.test('a pair that says what the port may do anyway is no second one', async t => {
  const pairs = [{ address: '192.0.2.5', macAddress: 'fa:16:3e:00:00:01' }]
  const [row] = rowsOf(
    portRows(port({ addresses: port().addresses.slice(0, 1), pairs }), network(), INSTANCE, []),
    'Logical_Switch_Port',
  )
  t.same(row?.row.port_security, ['fa:16:3e:00:00:01 192.0.2.5'])
})

t.test('a port without port security may send from anything', async t => {
  const [row] = rowsOf(portRows(port({ isOpen: true }), network(), INSTANCE, []), 'Logical_Switch_Port')
  t.same(row?.row.port_security, [])
})

t.test('the port of the balancer router belongs to it', async t => {
  t.same(portRows(port({ role: 'balancer' }), network(), INSTANCE, []).rows, [])
})

const LEG = {
  portId: uuid(9, 2),
  networkId: NETWORK,
  mtu: 1442,
  macAddress: 'fa:16:3e:00:00:03',
  addresses: ['192.0.2.1/24'],
}
const FAR = {
  portId: uuid(9, 3),
  networkId: uuid(8, 2),
  mtu: 1442,
  macAddress: 'fa:16:3e:00:00:04',
  addresses: ['10.1.0.1/16', '2001:db8:1::1/64'],
}
const router = (change: Partial<Router> = {}): Router => ({
  ...{ id: uuid(6, 1), interfaces: [LEG, FAR], gateway: null, floatingIps: [], routes: [] },
  ...change,
})
const GATEWAY = {
  ...{ portId: uuid(9, 4), networkId: uuid(8, 3), mtu: 1500, macAddress: 'fa:16:3e:00:00:05' },
  ...{
    addresses: ['198.51.100.2/24'],
    nextHops: ['198.51.100.1'],
    subnets: ['198.51.100.0/24'],
    snatAddress: '198.51.100.2',
  },
}

t.test('a router has a leg on each network', async t => {
  const desired = routerRows(router(), INSTANCE, [])
  t.same(
    rowsOf(desired, 'Logical_Router_Port').map(({ row }) => row.networks),
    [['192.0.2.1/24'], ['10.1.0.1/16', '2001:db8:1::1/64']],
  )
  t.same(
    rowsOf(desired, 'Logical_Switch_Port').map(({ row, heldBy }) => [row.type, heldBy[0]?.uuid]),
    [
      ['router', rowUuid(INSTANCE, 'network', NETWORK)],
      ['router', rowUuid(INSTANCE, 'network', uuid(8, 2))],
    ],
  )
})

t.test('with a gateway it translates, on one chassis', async t => {
  const floatingIps = [{ address: '198.51.100.9', fixedAddress: '192.0.2.5' }]
  const desired = routerRows(router({ gateway: GATEWAY, floatingIps }), INSTANCE, [{ name: 'one', priority: 1 }])
  t.same(
    rowsOf(desired, 'NAT').map(({ row: { type, external_ip, logical_ip } }) => [type, external_ip, logical_ip]),
    [
      ['snat', '198.51.100.2', '192.0.2.0/24'],
      ['snat', '198.51.100.2', '10.1.0.0/16'],
      ['dnat_and_snat', '198.51.100.9', '192.0.2.5'],
    ],
  )
  t.match(rowsOf(desired, 'Gateway_Chassis')[0]?.row, { chassis_name: 'one', priority: 1 })
  t.match(rowsOf(desired, 'Logical_Router_Static_Route')[0]?.row, { ip_prefix: '0.0.0.0/0', nexthop: '198.51.100.1' })
  const without = routerRows(router({ gateway: { ...GATEWAY, snatAddress: null } }), INSTANCE, [
    { name: 'one', priority: 1 },
  ])
  t.same(rowsOf(without, 'NAT'), [])
  t.same(
    routerRows(router({ gateway: GATEWAY, floatingIps }), INSTANCE, []),
    routerRows(router(), INSTANCE, []),
    'and without a chassis for it, it has none',
  )
})

t.test('a balancer router leads to the networks behind routers, and elsewhere by the gateway', async t => {
  const desired = balancerRows(port({ role: 'balancer' }), network(), [router()], INSTANCE)
  t.same(rowsOf(desired, 'Logical_Router_Port')[0]?.row.networks, ['192.0.2.5/24', '2001:db8::5/64'])
  t.same(
    rowsOf(desired, 'Logical_Router_Static_Route').map(({ row: { ip_prefix, nexthop } }) => [ip_prefix, nexthop]),
    [
      // The router has no IPv6 address here.
      ['10.1.0.0/16', '192.0.2.1'],
      ['0.0.0.0/0', '192.0.2.1'],
      ['::/0', '2001:db8::1'],
    ],
  )
})

const rule = { direction: 'ingress', version: 4, protocol: 6, min: 80, max: 80, remote: null } as const
const filters = (
  change: Partial<Filters['filters'][number]> = {},
  rules: Filters['groups'][number]['rules'] = [rule],
): Filters => ({
  filters: [{ portId: uuid(9, 1), networkId: NETWORK, vips: null, groupIds: [uuid(6, 9)], stateful: true, ...change }],
  groups: [{ id: uuid(6, 9), rules, members: ['192.0.2.5', '2001:db8::/64'] }],
  shares: [],
})
const acls = (of: Filters) =>
  securityRows(of, INSTANCE).flatMap(desired =>
    rowsOf(desired, 'ACL').map(({ row: { direction, priority, match, action } }) => ({
      direction,
      priority,
      match,
      action,
    })),
  )

t.test('what no rule allows is dropped', async t => {
  const own = `@krater_filtered_${uuid(9, 1).replaceAll('-', '')}`
  const all = acls(filters())
  t.ok(
    all.some(
      ({ match, action, priority }) =>
        match === `outport == ${own} && ip4 && tcp && tcp.dst == 80` && action === 'allow-related' && priority === 1002,
    ),
  )
  t.same(
    all.filter(({ action }) => action === 'drop'),
    [
      { direction: 'to-lport', priority: 1001, match: `outport == ${own} && ip`, action: 'drop' },
      { direction: 'from-lport', priority: 1001, match: `inport == ${own} && ip`, action: 'drop' },
    ],
  )
  const [, desired] = securityRows(filters(), INSTANCE)
  t.equal(filterHolders(uuid(9, 1), INSTANCE)[0]?.uuid, rowsOf(desired!, 'Port_Group')[0]?.uuid)
})

t.test('each part of a rule is in its match', async t => {
  const match = (change: object) =>
    acls(filters({}, [{ ...rule, ...change }])).find(({ action }) => action === 'allow-related')?.match ?? ''
  t.match(match({ min: 80, max: 90 }), 'tcp.dst >= 80 && tcp.dst <= 90')
  t.match(match({ protocol: 1, min: 8, max: 0 }), 'icmp4.type == 8 && icmp4.code == 0')
  t.match(match({ protocol: 58, version: 6, min: null, max: null }), 'ip6 && icmp6')
  t.match(match({ protocol: 47, min: null, max: null }), 'ip.proto == 47')
  t.match(match({ remote: { cidr: '198.51.100.0/24' } }), 'ip4.src == 198.51.100.0/24')
  t.match(
    match({ direction: 'egress', remote: { groupId: uuid(6, 9) } }),
    `ip4.dst == $krater_members4_${uuid(6, 9).replaceAll('-', '')}`,
  )
})

t.test('a group is known by the addresses of its ports', async t => {
  const [group] = securityRows(filters(), INSTANCE)
  t.same(
    rowsOf(group!, 'Address_Set').map(({ row }) => row.addresses),
    [['192.0.2.5'], ['2001:db8::/64']],
  )
})

t.test('an amphora is filtered for its VIPs only', async t => {
  const matches = acls(filters({ vips: ['192.0.2.9'] })).map(({ match }) => match)
  t.ok(
    matches.length > 0 && matches.every(match => /ip4\.(dst|src) == 192\.0\.2\.9/.test(match ?? '')),
    matches.join('\n'),
  )
})

t.test('a stateless group lets no answers through by itself', async t => {
  t.ok(acls(filters({ stateful: false })).some(({ action }) => action === 'allow-stateless'))
})
