import t from 'tap'
import { chooseProvider } from '../../../controller/network/api/networks/provider.js'
import { NeutronError } from '../../../controller/network/api/neutron-error.js'
import { chooseSecurity } from '../../../controller/network/api/ports/port-security.js'
import { addRoutes, removeRoutes } from '../../../controller/network/api/routers/extra-routes.js'
import { keyOf, normaliseRule, type RequestedRule } from '../../../controller/network/api/security-groups/rule-rules.js'

/** Status, type and message of what the function throws. */
function faultOf(act: () => unknown): Pick<NeutronError, 'status' | 'type' | 'message'> | null {
  try {
    act()
    return null
  } catch (error) {
    if (!(error instanceof NeutronError)) throw error
    return { status: error.status, type: error.type, message: error.message }
  }
}

const rule = (values: Partial<RequestedRule> = {}): RequestedRule => ({
  direction: 'ingress',
  ethertype: 'IPv4',
  protocol: null,
  port_range_min: null,
  port_range_max: null,
  remote_ip_prefix: null,
  remote_group_id: null,
  ...values,
})

const ports = (protocol: string | null, port_range_min: number | null, port_range_max: number | null) =>
  rule({ protocol, port_range_min, port_range_max })

t.test('a rule is stored in one form', async t => {
  for (const [protocol, ethertype, stored, number] of [
    ['TCP', 'IPv4', 'tcp', 6],
    ['17', 'IPv4', '17', 17],
    ['icmp', 'IPv4', 'icmp', 1],
    ['icmp', 'IPv6', 'icmp', 58],
    ['ICMPv6', 'IPv6', 'icmpv6', 58],
    ['0', 'IPv4', '0', 0],
    ['255', 'IPv4', '255', 255],
    ['any', 'IPv4', null, null],
    ['ip', 'IPv6', null, null],
  ] as const) {
    t.match(normaliseRule(rule({ protocol, ethertype })), { protocol: stored, protocol_number: number }, protocol)
  }
  for (const [prefix, ethertype, stored] of [
    ['10.1.2.3/8', 'IPv4', '10.0.0.0/8'],
    ['192.0.2.7', 'IPv4', '192.0.2.7/32'],
    ['2001:DB8::1/32', 'IPv6', '2001:db8::/32'],
    ['::1', 'IPv6', '::1/128'],
  ] as const) {
    t.equal(normaliseRule(rule({ remote_ip_prefix: prefix, ethertype })).remote_ip_prefix, stored)
  }
})

t.test('a rule that means nothing is refused', async t => {
  for (const [refused, type] of [
    [rule({ protocol: 'nonsense' }), 'SecurityGroupRuleInvalidProtocol'],
    [rule({ protocol: '256' }), 'SecurityGroupRuleInvalidProtocol'],
    [rule({ protocol: '-1' }), 'SecurityGroupRuleInvalidProtocol'],
    [rule({ protocol: 'constructor' }), 'SecurityGroupRuleInvalidProtocol'],
    [rule({ protocol: 'ipv6-icmp' }), 'SecurityGroupEthertypeConflictWithProtocol'],
    [ports(null, 80, 80), 'SecurityGroupProtocolRequiredWithPorts'],
    [ports('any', 80, 80), 'SecurityGroupProtocolRequiredWithPorts'],
    [ports('gre', 80, 80), 'SecurityGroupInvalidProtocolForPort'],
    [ports('tcp', 81, 80), 'SecurityGroupInvalidPortRange'],
    [ports('udp', 80, null), 'SecurityGroupInvalidPortRange'],
    [ports('sctp', null, 80), 'SecurityGroupInvalidPortRange'],
    [ports('tcp', 0, 80), 'SecurityGroupInvalidPortValue'],
    [ports('tcp', 80, 65_536), 'SecurityGroupInvalidPortValue'],
    [ports('icmp', 256, null), 'SecurityGroupInvalidIcmpValue'],
    [ports('icmp', 8, -1), 'SecurityGroupInvalidIcmpValue'],
    [ports('icmp', null, 0), 'SecurityGroupMissingIcmpType'],
    [rule({ remote_ip_prefix: '10.0.0.0/33' }), 'InvalidCIDR'],
    [rule({ remote_ip_prefix: 'fd00::/64' }), 'SecurityGroupRuleParameterConflict'],
    [rule({ remote_ip_prefix: '10.0.0.0/8', remote_group_id: 'g' }), 'SecurityGroupMultipleRemoteEntites'],
  ] as const) {
    t.match(
      faultOf(() => normaliseRule(refused)),
      { type, status: 400 },
      `${type}: ${JSON.stringify(refused)}`,
    )
  }
  for (const accepted of [ports('tcp', 1, 65_535), ports('icmp', 8, 0), ports('icmp', 0, null), ports('dccp', 5, 5)]) {
    t.doesNotThrow(() => normaliseRule(accepted))
  }
})

t.test('two spellings of one rule are the same', async t => {
  const key = (values: Partial<RequestedRule>) => keyOf(normaliseRule(rule(values)))
  t.equal(key({ protocol: 'tcp' }), key({ protocol: '6', port_range_min: 1, port_range_max: 65_535 }))
  t.equal(key({ remote_ip_prefix: '0.0.0.0/0' }), key({}))
  t.equal(key({ protocol: 'icmp', ethertype: 'IPv6' }), key({ protocol: 'ipv6-icmp', ethertype: 'IPv6' }))
  t.not(key({ protocol: 'icmp', port_range_min: 1 }), key({ protocol: 'icmp' }))
  t.not(key({ remote_group_id: 'g' }), key({}))
  t.not(key({ direction: 'egress' }), key({}))
  t.not(key({ ethertype: 'IPv6' }), key({}))
})

t.test('groups filter a port from the start, or once somebody names them', async t => {
  const plain = { device_owner: '', port_security_enabled: true }
  const open = { port_security_enabled: true, filtered: false }
  const filtered = { port_security_enabled: true, filtered: true }
  t.strictSame(chooseSecurity({}, plain), filtered)
  t.strictSame(chooseSecurity({ security_groups: [] }, plain), filtered, 'without any, nothing gets in')
  t.strictSame(chooseSecurity({}, { ...plain, port_security_enabled: false }), {
    port_security_enabled: false,
    filtered: false,
  })
  const attachment = { ...plain, device_owner: 'krater:attachment' }
  t.strictSame(chooseSecurity({}, attachment), open)
  t.strictSame(chooseSecurity({ security_groups: ['g'] }, attachment), filtered)
  const older = { ...plain, filtered: false, security_groups: [], allowed_address_pairs: [] }
  t.strictSame(chooseSecurity({}, older), open, 'a port from before there were groups')
  t.strictSame(chooseSecurity({ security_groups: [] }, older), filtered)
  const without = { ...older, port_security_enabled: false }
  t.strictSame(chooseSecurity({ port_security_enabled: true }, without), filtered)
  const grouped = { ...older, filtered: true, security_groups: ['g'] }
  t.match(
    faultOf(() => chooseSecurity({ port_security_enabled: false }, grouped)),
    {
      type: 'PortSecurityPortHasSecurityGroup',
    },
  )
  t.strictSame(chooseSecurity({ port_security_enabled: false, security_groups: [] }, grouped), {
    port_security_enabled: false,
    filtered: false,
  })
  t.match(
    faultOf(() => chooseSecurity({ security_groups: ['g'] }, without)),
    {
      status: 400,
      type: 'PortSecurityAndIPRequiredForSecurityGroups',
    },
  )
  t.match(
    faultOf(() => chooseSecurity({ allowed_address_pairs: [{}] }, without)),
    {
      status: 409,
      type: 'AddressPairAndPortSecurityRequired',
    },
  )
})

t.test('provider attributes go together or are refused', async t => {
  const choose = (type: 'local' | 'flat' | 'vlan' | undefined, physical?: string, segment?: number) =>
    chooseProvider(
      {
        'provider:network_type': type,
        'provider:physical_network': physical,
        'provider:segmentation_id': segment,
      },
      ['lan'],
    )
  const local = { network_type: 'local', physical_network: null, segmentation_id: null }
  t.strictSame(choose(undefined), local)
  t.strictSame(choose('local'), local)
  t.strictSame(choose('flat', 'lan'), { ...local, network_type: 'flat', physical_network: 'lan' })
  t.strictSame(choose('vlan', 'lan', 7), { network_type: 'vlan', physical_network: 'lan', segmentation_id: 7 })
  for (const [refused, message] of [
    [() => choose(undefined, 'lan'), /network_type required/],
    [() => choose('local', 'lan'), /physical_network prohibited for local/],
    [() => choose('flat'), /physical_network required for flat/],
    [() => choose('flat', 'lan', 7), /segmentation_id prohibited for flat/],
    [() => choose('vlan', 'lan'), /segmentation_id required for vlan/],
    [() => choose('flat', 'wan'), /physical_network 'wan' unknown/],
  ] as const) {
    t.match(faultOf(refused), { status: 400, type: 'InvalidInput', message })
  }
})

t.test('extra routes are added and removed one by one', async t => {
  const [one, two] = ['10.1.0.0/16', '10.2.0.0/16'].map(destination => ({ destination, nexthop: '10.0.0.9' }))
  t.strictSame(addRoutes([one!], [two!, one!, two!]), [one, two])
  t.strictSame(removeRoutes([one!, two!], [one!, { ...two!, nexthop: '10.0.0.8' }]), [two])
})
