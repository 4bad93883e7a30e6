import t from 'tap'
import { widestCidrs } from '../../../controller/network/addresses.js'
import { parseFlow } from '../../../controller/network/local/connections/conntrack.js'
import { natCommands, networksBehind, staleFlows } from '../../../controller/network/local/routers/plan-nat.js'
import { observedRouter, planRouter } from '../../../controller/network/local/routers/plan-router.js'
import type { Router } from '../../../controller/network/local/routers/router.js'

const port = (portId: string, ...addresses: string[]) => ({
  portId,
  networkId: 'n',
  mtu: 1500,
  macAddress: 'fa:16:3e:00:00:01',
  addresses,
})

const router: Router = {
  id: 'r',
  interfaces: [port('aaaaaaaa-aaaa-', '10.0.0.1/24', 'fd0a::1/64')],
  gateway: {
    ...port('bbbbbbbb-bbbb-', '198.51.100.10/24'),
    nextHops: ['198.51.100.1'],
    subnets: ['198.51.100.0/24'],
    snatAddress: '198.51.100.10',
  },
  floatingIps: [{ address: '198.51.100.50', fixedAddress: '10.0.0.10' }],
  routes: [{ destination: '10.9.0.0/16', nextHop: '10.0.0.9' }],
}
const [qr, qg] = ['qr-aaaaaaaaaaa', 'qg-bbbbbbbbbbb']
const link = (ifname: string, flags: string[], addr_info: object[]) => ({ ifname, flags, addr_info }) as never

t.test('a new router gets its addresses and routes, and announces them', async t => {
  const plan = planRouter(router, observedRouter([link(qr, [], []), link(qg, [], [])], { 4: [], 6: [] }))
  t.same(plan.lines, [
    `address replace 10.0.0.1/24 dev ${qr}`,
    `address replace fd0a::1/64 dev ${qr} nodad`,
    `address replace 198.51.100.10/24 dev ${qg}`,
    `address replace 198.51.100.50/32 dev ${qg}`,
    `link set dev ${qr} up`,
    `link set dev ${qg} up`,
    `route replace 0.0.0.0/0 via 198.51.100.1 dev ${qg} onlink proto static`,
    `route replace 10.9.0.0/16 via 10.0.0.9 dev ${qr} onlink proto static`,
  ])
  t.same(
    plan.announce.map(({ device }) => device),
    [qr, qg],
  )
})

t.test('a router that is as it should be needs nothing; a foreign address and an old route go', async t => {
  const address = (local: string, prefixlen: number, scope = 'global') => ({ local, prefixlen, scope })
  const inside = [address('10.0.0.1', 24), address('fd0a::1', 64), address('fe80::1', 64, 'link')]
  const outside = [address('198.51.100.10', 24), address('198.51.100.50', 32)]
  const routes = [
    { dst: 'default', gateway: '198.51.100.1', dev: qg, protocol: 'static' },
    { dst: '10.9.0.0/16', gateway: '10.0.0.9', dev: qr, protocol: 'static' },
    { dst: '10.0.0.0/24', dev: qr, protocol: 'kernel' },
  ]
  const look = (extra: object[], more: typeof routes) =>
    planRouter(
      router,
      observedRouter([link(qr, ['UP'], inside), link(qg, ['UP'], [...outside, ...extra])], {
        4: [...routes, ...more],
        6: [],
      }),
    )
  t.same(look([], []), { lines: [], announce: [] })
  const old = { dst: '10.8.0.7', gateway: '10.0.0.9', dev: qr, protocol: 'static' }
  t.same(look([address('198.51.100.99', 32)], [old]).lines, [
    `address delete 198.51.100.99/32 dev ${qg}`,
    `route delete 10.8.0.7/32 via 10.0.0.9 dev ${qr} proto static`,
  ])
})

t.test('an extra default route comes before that of the gateway', async t => {
  const other = { ...router, routes: [{ destination: '0.0.0.0/0', nextHop: '10.0.0.9' }] }
  const { lines } = planRouter(other, observedRouter([], { 4: [], 6: [] }))
  t.same(
    lines.filter(line => line.includes('0.0.0.0/0')),
    [`route replace 0.0.0.0/0 via 10.0.0.9 dev ${qr} onlink proto static`],
  )
})

t.test('a leg passes on what is behind it, and nothing twice', async t => {
  t.same(networksBehind(router.interfaces[0]!, router.routes), ['10.0.0.0/24', 'fd0a::/64', '10.9.0.0/16'])
  t.same(widestCidrs(['10.0.0.0/24', '10.0.0.0/8', 'fd00::/8', '10.0.0.0/24', 'no']), ['10.0.0.0/8', 'fd00::/8'])
})

t.test('SNAT closes the subnets to the external network; without it they are open', async t => {
  const open = 'iifname "qg-bbbbbbbbbbb" ip daddr { 10.0.0.0/24, 10.9.0.0/16 } accept'
  t.notOk(natCommands(router).includes(open))
  t.match(natCommands(router), /snat ip to 198\.51\.100\.10/)
  const plain = natCommands({ ...router, gateway: { ...router.gateway!, snatAddress: null } })
  t.ok(plain.includes(open))
  t.notMatch(plain, /snat ip to 198\.51\.100\.10/)
  t.notMatch(natCommands({ ...router, gateway: null, floatingIps: [] }), /qg-|add element/)
})

t.test('connections of floating IPs and gateway addresses that are gone are stale, and no others', async t => {
  const line = (original: string, reply: string) =>
    parseFlow(
      `ipv4     2 tcp      6 431999 ESTABLISHED ${original} sport=1 dport=2 ${reply} sport=2 dport=1 [ASSURED] mark=0 use=1`,
    )!
  const keep = [
    line('src=203.0.113.9 dst=198.51.100.50', 'src=10.0.0.10 dst=203.0.113.9'),
    line('src=10.0.0.10 dst=203.0.113.9', 'src=203.0.113.9 dst=198.51.100.50'),
    line('src=10.0.0.11 dst=203.0.113.9', 'src=203.0.113.9 dst=198.51.100.10'),
    line('src=10.0.0.11 dst=10.0.1.9', 'src=10.0.1.9 dst=10.0.0.11'),
    line('src=10.0.0.11 dst=198.51.100.50', 'src=10.0.0.10 dst=198.51.100.10'),
  ]
  t.same(staleFlows(router, keep), [])
  const stale = [
    line('src=203.0.113.9 dst=198.51.100.50', 'src=10.0.0.12 dst=203.0.113.9'),
    line('src=203.0.113.8 dst=198.51.100.50', 'src=10.0.0.12 dst=203.0.113.8'),
    line('src=10.0.0.12 dst=203.0.113.9', 'src=203.0.113.9 dst=198.51.100.51'),
  ]
  t.same(staleFlows(router, [...keep, ...stale]), [
    ['--orig-dst', '198.51.100.50', '--reply-src', '10.0.0.12'],
    ['--orig-src', '10.0.0.12', '--reply-dst', '198.51.100.51'],
  ])
})

t.test('a line of conntrack', async t => {
  t.match(
    parseFlow(
      'ipv4     2 icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=7 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=7 mark=3 zone=9 use=1',
    ),
    { protocol: 1, icmp: { type: 8, code: 0 }, mark: 3, zone: 9, original: { source: '10.0.0.1', sourcePort: null } },
  )
  t.equal(parseFlow('conntrack v1.4.7 (conntrack-tools): 4 flow entries have been shown.'), null)
})
