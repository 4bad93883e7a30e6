import t from 'tap'
import {
  conflictFindings,
  sharedInterfaces,
  uplinkFindings,
} from '../../../controller/cli/commands/doctor/networks/physical-networks.js'
import { outsideFinding, reachFinding } from '../../../controller/cli/commands/doctor/networks/reach.js'
import {
  type DetailedLink,
  filterLines,
  filtersShown,
  ingressFilters,
  planUplinks,
} from '../../../controller/network/local/uplinks/plan.js'

const REACH = {
  cidrs: ['10.9.16.0/20', 'fd00::/64'],
  interfaceName: 'krabcd-pub',
  forwards: { ipv4: true, ipv6: true },
  droppedBy: null,
  address: '192.0.2.7',
}
const NO_IPV6 = { ...REACH, forwards: { ipv4: true, ipv6: false } }
const DROPS = { ...REACH, droppedBy: { chain: 'ip filter FORWARD', firewall: 'iptables' } } as const

t.test('the doctor says why VIPs and members are out of reach, and what to do', async t => {
  t.match(reachFinding(REACH), {
    state: 'note',
    text: 'other machines need a route to the VIPs in 10.9.16.0/20 and fd00::/64',
    remedy:
      'on each other machine: ip route add 10.9.16.0/20 via 192.0.2.7; ip route add fd00::/64 via ITS-IPV6-ADDRESS',
  })
  t.match(reachFinding(NO_IPV6), { text: /this machine forwards no IPv6$/, remedy: /^sysctl -w net\.ipv6/ })
  t.match(reachFinding(DROPS), { text: /ip filter FORWARD/, remedy: /^iptables -I FORWARD -i krabcd-pub -j ACCEPT\n/ })
  const [undecided, off] = [outsideFinding(REACH, undefined), outsideFinding(REACH, false)]
  t.match(undecided, { state: 'note', remedy: /krater settings --restart network\.outside=true$/ })
  t.match(off, { state: 'ok' }, 'whoever decided is not asked again')
  t.match(outsideFinding(REACH, true), { state: 'ok' })
  t.match(outsideFinding(DROPS, true), { state: 'fault', text: /the firewall drops/ })
  t.match(outsideFinding(NO_IPV6, true), { state: 'fault', remedy: /^krater up --detach/ })
})

const link = (ifname: string, more: Partial<DetailedLink> = {}): DetailedLink => ({
  ifindex: 7,
  ifname,
  flags: ['UP'],
  mtu: 1500,
  address: '02:00:00:00:00:07',
  link_type: 'ether',
  ...more,
})
const NETWORK = {
  id: '01234567-89ab-cdef-0123-456789abcdef',
  mtu: 1500,
  physicalNetwork: 'lan',
  segmentationId: null,
  macAddresses: [],
}

t.test('the plan of uplinks', async t => {
  const plan = (hostLinks: DetailedLink[], network: object = {}) =>
    planUplinks([{ ...NETWORK, ...network }], {
      physicalNetworks: { lan: { interface: 'eth0' } },
      hostLinks,
      filtered: new Map([['eth0', [{ first: 1, last: 9 }]]]),
      instance: 'abcd',
      bridgeOf: () => 'br0',
    })
  const ends = { fabricEnd: 'u0123456789a', bridge: 'br0' }
  t.match(plan([link('eth0')]).uplinks, [{ ...ends, kind: 'frames', hostEnd: 'krabcd-012345' }])
  t.match(plan([link('eth0', { linkinfo: { info_kind: 'bridge' } })]).uplinks, [{ kind: 'bridge' }])
  const inVrf = link('eth0', { master: 'red', linkinfo: { info_slave_kind: 'vrf' } })
  t.match(plan([inVrf]).uplinks, [{ kind: 'frames' }])
  t.match(plan([link('eth0')], { segmentationId: 9 }).uplinks, [{ ...ends, kind: 'vlan', id: 9 }])
  const own = link('eth0.9', { ifindex: 8, link_index: 7, linkinfo: { info_kind: 'vlan', info_data: { id: 9 } } })
  const faults: [DetailedLink[], object, RegExp][] = [
    [[], {}, /no interface eth0/],
    [[link('eth0', { flags: [] })], {}, /eth0 is down/],
    [[link('eth0', { master: 'bond0' })], {}, /a part of bond0/],
    [[link('eth0', { link_type: 'none' })], {}, /no Ethernet/],
    [[link('eth0'), own], { segmentationId: 9 }, /itself uses VLAN 9 of eth0, as eth0\.9/],
    [[link('eth0')], { segmentationId: 10 }, /eth0 filters VLANs, and does not pass VLAN 10/],
    [[link('eth0')], { physicalNetwork: 'dc' }, /does not name dc/],
  ]
  for (const [links, network, reason] of faults) {
    const { uplinks, problems } = plan(links, network)
    t.same(uplinks, [])
    t.match(problems, [{ reason }], String(reason))
  }
  const { kept } = plan([])
  t.same([...kept], ['u0123456789a', 'krabcd-012345'], 'what is there outlives an interface that is away')
  t.same([...plan([], { physicalNetwork: 'dc' }).kept], [], 'but not a physical network that is no longer named')

  const [uplink] = plan([link('eth0', { mtu: 1400 })]).uplinks
  t.match(uplinkFindings(uplink!, []), [{ text: /not joined to eth0/ }, { text: /MTU of 1500, and eth0 one of 1400/ }])
  t.same(uplinkFindings({ ...uplink!, link: link('eth0') }, [link('krabcd-012345')]), [])
  t.match(
    sharedInterfaces([
      ['a', 'eth0'],
      ['b', 'eth1'],
      ['c', 'eth0'],
    ]),
    [{ text: /^a and c are one network/ }],
  )
  const answers = ['02:aa', 'fa:16', '02:aa'].map(macAddress => ({ address: '192.0.2.9', macAddress }))
  t.match(conflictFindings(answers, ['fa:16']), [{ text: /^192\.0\.2\.9 is in use twice: .* 02:aa$/ }])
  t.equal(conflictFindings(answers, ['fa:16']).length, 1)
})

t.test('what tc shows of the filters is compared with what they should be', async t => {
  const filters = ingressFilters(link('eth0'))
  const shown = filters.map(
    ({ matches, actions }) =>
      `filter protocol all pref 1 u32 chain 0 fh 800: ht divisor 1
filter protocol all pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:1 not_in_hw
${matches.map(match => `  match ${match}\n`).join('')}${actions.map(action => `\taction order 1: mirred (${action}) stolen\n`).join('')}`,
  )
  t.same(filtersShown(shown.join('')), filters)
  t.notSame(filtersShown(shown.slice(1).join('')), filters)
  t.match(filterLines('kr-1', filters), [
    'qdisc replace dev kr-1 clsact',
    'filter delete dev kr-1 ingress',
    'filter add dev kr-1 ingress pref 1 protocol all u32 match u32 0x00000200 0x0000ffff at -16 match u32 0x00000007 0xffffffff at -12 flowid 1:1 action mirred ingress redirect dev eth0',
  ])
})
