import t from 'tap'
import type { DesiredRow } from '../../../../controller/ovn/northbound/desired.js'
import { gatewayRouterUuid, rowUuid, switchUuid } from '../../../../controller/ovn/northbound/row-uuid.js'
import type { OvnFacts } from '../../../../controller/provider/ovn/rows/facts.js'
import {
  loadBalancerOf,
  loadBalancerRows,
  ownerOf,
  probedPortOf,
} from '../../../../controller/provider/ovn/rows/load-balancer-rows.js'
import { aListener, aMember, aMonitor, aPool, aTree, uuid } from '../../../golden/models.js'

const NETWORK = uuid(8, 1)
const FACTS: OvnFacts = {
  instance: 'abcdef',
  vips: [
    { address: '203.0.113.10', networkId: NETWORK },
    { address: '2001:db8::10', networkId: NETWORK },
  ],
  floatingIps: [],
  clientNetworks: [NETWORK],
  gatewayRouters: [],
  entrances: [],
  probes: new Map(),
}
const listener = (change = {}) =>
  aListener(1, { protocol: 'TCP', protocolPort: 80, defaultPoolId: uuid(3, 1), ...change })
const pool = (change = {}) =>
  aPool(1, {
    ...{ protocol: 'TCP', lbAlgorithm: 'SOURCE_IP_PORT' },
    members: [aMember(1), aMember(2), aMember(3, { address: '2001:db8::3' })],
    ...change,
  })
const tree = (change = {}) => aTree({ provider: 'ovn', listeners: [listener()], pools: [pool()], ...change })

const rowsOf = (table: string, rows: readonly DesiredRow[]) => rows.filter(row => row.table === table)
const balancers = (of: ReturnType<typeof tree>, facts = FACTS) =>
  rowsOf('Load_Balancer', loadBalancerRows(of, facts).rows) as Extract<DesiredRow, { table: 'Load_Balancer' }>[]
/** That of IPv4. */
const balancer = (of: ReturnType<typeof tree>, facts = FACTS) => balancers(of, facts)[0]!
const vipsOf = (of: ReturnType<typeof tree>) => Object.assign({}, ...balancers(of).map(({ row }) => row.vips)) as object

t.test('each VIP leads to the members of its family', async t => {
  t.same(vipsOf(tree()), {
    '203.0.113.10:80': '192.0.2.1:80,192.0.2.2:80',
    '[2001:db8::10]:80': '[2001:db8::3]:80',
  })
  t.same(balancer(tree()).row.options, { neighbor_responder: 'none', reject: 'true' })
})

t.test('a member that is disabled, drained or being deleted gets nothing new', async t => {
  for (const change of [{ adminStateUp: false }, { weight: 0 }, { change: 'delete' as const }]) {
    const members = [aMember(1, change), aMember(2)]
    t.equal(balancer(tree({ pools: [pool({ members })] })).row.vips?.['203.0.113.10:80'], '192.0.2.2:80')
  }
})

t.test('without a member left, the VIP stays, so that clients are refused at once', async t => {
  for (const pools of [[], [pool({ members: [] })], [pool({ adminStateUp: false })]]) {
    t.same(vipsOf(tree({ pools })), { '203.0.113.10:80': '', '[2001:db8::10]:80': '' })
  }
})

t.test('what is disabled or being deleted has no VIP', async t => {
  t.same(vipsOf(tree({ adminStateUp: false })), {})
  t.same(vipsOf(tree({ listeners: [listener({ adminStateUp: false })] })), {})
  t.same(
    rowsOf('Load_Balancer', loadBalancerRows(tree({ listeners: [listener({ change: 'delete' })] }), FACTS).rows),
    [],
  )
  t.same(loadBalancerRows(tree({ change: 'delete' }), FACTS).rows, [])
})

t.test('the algorithm and persistence say how a client’s member is chosen', async t => {
  const choices = (change: object) =>
    balancers(tree({ pools: [pool(change)] })).map(({ row }) => [
      row.selection_fields?.length,
      row.options?.['affinity_timeout'],
    ])
  const persistence = (persistenceTimeout: number | null) => ({
    sessionPersistence: { type: 'SOURCE_IP', cookieName: null, persistenceTimeout, persistenceGranularity: null },
  })
  const [bySource, byFlow] = [2, 4]
  t.same(choices({ lbAlgorithm: 'SOURCE_IP_PORT' }), [
    [byFlow, undefined],
    [byFlow, undefined],
  ])
  // For IPv6 it has no hash of the source: it remembers.
  for (const change of [{ lbAlgorithm: 'SOURCE_IP' }, persistence(null)])
    t.same(choices(change), [
      [bySource, undefined],
      [byFlow, '360'],
    ])
  t.same(choices(persistence(30)), [
    [bySource, '30'],
    [byFlow, '30'],
  ])
  // No time is no persistence.
  t.same(choices(persistence(0)), [
    [byFlow, undefined],
    [byFlow, undefined],
  ])
})

t.test('a floating IP is one more VIP, and clients come to all networks around', async t => {
  const facts: OvnFacts = {
    ...FACTS,
    floatingIps: [{ address: '198.51.100.7', vip: '203.0.113.10' }],
    clientNetworks: [NETWORK, uuid(8, 2)],
    gatewayRouters: [uuid(6, 1)],
    entrances: [{ networkId: uuid(8, 3), macAddress: 'fa:16:3e:00:00:07' }],
  }
  const row = balancer(tree(), facts)
  t.ok('198.51.100.7:80' in (row.row.vips ?? {}))
  t.same(row.heldBy, [
    { table: 'Logical_Switch', uuid: rowUuid('abcdef', 'network', NETWORK), column: 'load_balancer' },
    { table: 'Logical_Switch', uuid: rowUuid('abcdef', 'network', uuid(8, 2)), column: 'load_balancer' },
    { table: 'Logical_Router', uuid: gatewayRouterUuid('abcdef', uuid(6, 1)), column: 'load_balancer' },
  ])
})

t.test('a monitor probes each VIP’s members from an address on their subnet', async t => {
  const healthMonitor = aMonitor(1, { type: 'TCP' })
  const facts = {
    ...FACTS,
    probes: new Map([
      [uuid(4, 1), { portId: uuid(9, 1), source: '192.0.2.250' }],
      [uuid(4, 3), { portId: uuid(9, 3), source: '2001:db8::fa' }],
    ]),
  }
  const { rows } = loadBalancerRows(tree({ pools: [pool({ healthMonitor })] }), facts)
  t.match(
    rowsOf('Load_Balancer_Health_Check', rows).map(({ row }) => row),
    ['203.0.113.10:80', '[2001:db8::10]:80'].map(vip => ({
      vip,
      options: { interval: '5', timeout: '3', success_count: '2', failure_count: '3' },
    })),
  )
  // A member that is no port of ours cannot be probed.
  t.same(
    balancers(tree({ pools: [pool({ healthMonitor })] }), facts).map(({ row }) => row.ip_port_mappings),
    [{ '192.0.2.1': `${uuid(9, 1)}:192.0.2.250` }, { '[2001:db8::3]': `${uuid(9, 3)}:[2001:db8::fa]` }],
  )
  for (const change of [{ adminStateUp: false }, { change: 'delete' as const }]) {
    const pools = [pool({ healthMonitor: { ...healthMonitor, ...change } })]
    t.same(rowsOf('Load_Balancer_Health_Check', loadBalancerRows(tree({ pools }), facts).rows), [])
  }
})

t.test('clients that allowed_cidrs do not name are dropped before they are balanced', async t => {
  const allowedCidrs = ['0.0.0.0/1', '128.0.0.0/2', '224.0.0.0/3']
  const { rows } = loadBalancerRows(tree({ listeners: [listener({ allowedCidrs })] }), FACTS)
  t.same(
    rowsOf('ACL', rows).map(({ row }) => (row as { match: string }).match),
    [
      // A match of what is not in a list has a flow for each combination.
      'ip4.dst == 203.0.113.10 && tcp.dst == 80 && ip4.src == {192.0.0.0/3}',
      // None of them is of its family.
      'ip6.dst == 2001:db8::10 && tcp.dst == 80',
    ],
  )
  const everybody = listener({ allowedCidrs: ['0.0.0.0/0', '::/0'] })
  t.same(rowsOf('ACL', loadBalancerRows(tree({ listeners: [everybody] }), FACTS).rows), [])
  t.match(rowsOf('ACL', rows)[0]?.row, { direction: 'from-lport', action: 'drop' })
})

t.test('nor do they come in by the legs of routers that balance, whatever leads there', async t => {
  const entrances = [
    { networkId: uuid(8, 3), macAddress: 'fa:16:3e:00:00:07' },
    { networkId: uuid(8, 4), macAddress: 'fa:16:3e:00:00:08' },
  ]
  const facts: OvnFacts = {
    ...{ ...FACTS, entrances, gatewayRouters: [uuid(6, 1)] },
    floatingIps: [{ address: '198.51.100.7', vip: '203.0.113.10' }],
  }
  const rules = (allowedCidrs: string[]) =>
    rowsOf('ACL', loadBalancerRows(tree({ listeners: [listener({ allowedCidrs })] }), facts).rows)
  const from = 'ip4.src == {128.0.0.0/1}'
  const expected = [
    `ip4.dst == 203.0.113.10 && tcp.dst == 80 && ${from}`,
    'ip6.dst == 2001:db8::10 && tcp.dst == 80',
    `ip4.dst == 198.51.100.7 && tcp.dst == 80 && ${from}`,
  ].flatMap(match => [
    { match, networks: [NETWORK] },
    // Others may have the same address there: only what is sent to the router.
    { match: `eth.dst == fa:16:3e:00:00:07 && ${match}`, networks: [uuid(8, 3)] },
    { match: `eth.dst == fa:16:3e:00:00:08 && ${match}`, networks: [uuid(8, 4)] },
  ])
  t.same(
    rules(['0.0.0.0/1']).map(({ row, heldBy }) => [(row as { match: string }).match, heldBy]),
    expected.map(({ match, networks }) => [
      match,
      networks.map(id => ({ table: 'Logical_Switch', uuid: switchUuid('abcdef', id), column: 'acls' })),
    ]),
  )
  t.equal(new Set(rules(['0.0.0.0/1']).map(({ uuid: id }) => id)).size, expected.length)
  t.same(rules(['0.0.0.0/0', '::/0']), [])
})

t.test('a leg of the network’s balancer router has the VIPs, and nothing else of the network', async t => {
  const { rows } = loadBalancerRows(tree(), FACTS)
  const [leg] = rowsOf('Logical_Router_Port', rows)
  t.match(leg?.row, { networks: ['2001:db8::10/128', '203.0.113.10/32'] })
  t.same(leg?.heldBy, [
    { table: 'Logical_Router', uuid: rowUuid('abcdef', 'balancer router', NETWORK), column: 'ports' },
  ])
})

t.test('the same tree always gives the same rows, and another one none of them', async t => {
  t.same(loadBalancerRows(tree(), FACTS), loadBalancerRows(tree(), FACTS))
  const other = tree({ id: uuid(1, 2), listeners: [aListener(2, { protocol: 'TCP' })] })
  const ids = new Set(loadBalancerRows(tree(), FACTS).rows.map(row => row.uuid))
  t.same(
    loadBalancerRows(other, FACTS).rows.filter(row => ids.has(row.uuid)),
    [],
  )
  t.equal(loadBalancerOf(ownerOf(uuid(1, 1))), uuid(1, 1))
  t.equal(loadBalancerOf(`network/${uuid(1, 1)}`), null)
})

t.test('a member’s logical port is what the standing rows say', async t => {
  const members = [aMember(1), aMember(3, { address: '2001:db8::3' })]
  const probed = pool({ healthMonitor: aMonitor(1, { type: 'TCP' }), members })
  const of = tree({ pools: [probed] })
  const probes = new Map([
    [members[0]!.id, { portId: 'port-4', source: '203.0.113.9' }],
    [members[1]!.id, { portId: 'port-6', source: '2001:db8::9' }],
  ])
  const rows = new Map(balancers(of, { ...FACTS, probes }).map(({ uuid: id, row }) => [id, row]))
  const standing = { instance: FACTS.instance, rowOf: (id: string) => (rows.get(id) ?? null) as never }
  t.same(
    members.map(member => probedPortOf(of, probed, member, standing)),
    ['port-4', 'port-6'],
  )
  t.equal(probedPortOf(of, pool({ id: uuid(3, 2) }), members[0]!, standing), null, 'of a pool that no listener uses')
  t.equal(probedPortOf(of, probed, members[0]!, { ...standing, rowOf: () => null }), null)
})
