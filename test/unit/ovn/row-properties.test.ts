import fc from 'fast-check'
import t from 'tap'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import type { Router } from '../../../controller/network/local/routers/router.js'
import type { Filters, Rule } from '../../../controller/network/local/security-groups/filters.js'
import { balancerRows } from '../../../controller/network/ovn/rows/balancer-rows.js'
import { routerRows } from '../../../controller/network/ovn/rows/router-rows.js'
import { filterHolders, securityRows } from '../../../controller/network/ovn/rows/security-rows.js'
import { networkRows, portRows } from '../../../controller/network/ovn/rows/switch-rows.js'
import type { OvnNetwork, OvnPort, OvnSubnet } from '../../../controller/network/ovn/rows/topology.js'
import type { Desired } from '../../../controller/ovn/northbound/desired.js'
import type { OvnFacts } from '../../../controller/provider/ovn/rows/facts.js'
import { loadBalancerOf, loadBalancerRows } from '../../../controller/provider/ovn/rows/load-balancer-rows.js'
import { nastyText } from '../../golden/hostile.js'
import { aListener, aMember, aMonitor, aPool, aTree, uuid } from '../../golden/models.js'
import { MemoryNorthbound } from '../../support/database/northbound.js'

const INSTANCE = 'abcdef'
/** Numbers of objects of a kind. */
const numbers = fc.subarray([1, 2, 3])
const byte = fc.integer({ min: 1, max: 254 })
const v4In = (network: number) => byte.map(host => `10.0.${network}.${host}`)
const v6In = (network: number) => byte.map(host => `2001:db8:${network}::${host.toString(16)}`)
const port = fc.integer({ min: 1, max: 65_535 })
const cidr = fc.oneof(
  byte.map(third => `192.0.${third}.0/24`),
  byte.map(third => `2001:db8:${third.toString(16)}::/48`),
)
const anyV6 = fc.ipV6().filter(address => !address.includes('.'))
const anyCidr = fc.oneof(
  fc.ipV4().map(address => `${address}/32`),
  anyV6.map(address => `${address}/128`),
)
const mac = (number: number) => `fa:16:3e:00:00:0${number}`

const subnets = (network: number): fc.Arbitrary<OvnSubnet[]> =>
  fc
    .record({
      enableDhcp: fc.boolean(),
      hasGateway: fc.boolean(),
      ipv6AddressMode: fc.constantFrom(null, 'slaac', 'dhcpv6-stateful', 'dhcpv6-stateless'),
      dnsNameservers: fc.array(v4In(9), { maxLength: 2 }),
      hostRoutes: fc.array(
        v4In(network).map(nexthop => ({ destination: '198.51.100.0/24', nexthop })),
        { maxLength: 1 },
      ),
    })
    .map(({ hasGateway, ...options }) =>
      ([4, 6] as const).map(
        (ipVersion): OvnSubnet => ({
          ...{ ...options, ipVersion, ipv6RaMode: null, id: uuid(7, network * 10 + ipVersion) },
          cidr: ipVersion === 4 ? `10.0.${network}.0/24` : `2001:db8:${network}::/64`,
          gatewayIp: hasGateway ? (ipVersion === 4 ? `10.0.${network}.1` : `2001:db8:${network}::1`) : null,
        }),
      ),
    )

const networkOf = (number: number): fc.Arbitrary<OvnNetwork> =>
  fc
    .record({
      subnets: subnets(number),
      isolated: fc.boolean(),
      hasLeg: fc.boolean(),
      vlan: fc.option(fc.integer({ min: 1, max: 4094 })),
    })
    .map(({ hasLeg, isolated, vlan, ...rest }) => ({
      ...{ ...rest, id: uuid(8, number), mtu: 1442, isolated: isolated && hasLeg },
      physical: vlan === null ? null : { name: 'lan', vlan },
      hostLeg: hasLeg ? { name: 'krabcdef-mgmt', macAddress: mac(9), addresses: [`10.0.${number}.1`] } : null,
    }))

const portOf = (network: number, number: number): fc.Arbitrary<OvnPort> =>
  fc
    .record({
      v4: v4In(network),
      v6: v6In(network),
      isOpen: fc.boolean(),
      adminStateUp: fc.boolean(),
      allowedAddresses: fc.array(v4In(network), { maxLength: 1 }),
      pairs: fc.array(
        cidr.map(address => ({ address, macAddress: mac(8) })),
        { maxLength: 2 },
      ),
    })
    .map(({ v4, v6, ...rest }) => ({
      ...{ ...rest, id: uuid(9, network * 10 + number), networkId: uuid(8, network), macAddress: mac(number) },
      addresses: [
        { address: v4, subnetId: uuid(7, network * 10 + 4) },
        { address: v6, subnetId: uuid(7, network * 10 + 6) },
      ],
      role: 'machine',
    }))

const routers: fc.Arbitrary<Router[]> = fc
  .record({ there: numbers, hasGateway: fc.boolean(), floating: fc.array(v4In(1), { maxLength: 2 }) })
  .map(({ there, hasGateway, floating }) => [
    {
      id: uuid(6, 1),
      interfaces: there.map(network => ({
        ...{ portId: uuid(9, network * 10 + 8), networkId: uuid(8, network), mtu: 1442, macAddress: mac(6) },
        addresses: [`10.0.${network}.1/24`, `2001:db8:${network}::1/64`],
      })),
      gateway: hasGateway
        ? {
            ...{ portId: uuid(9, 1), networkId: uuid(8, 3), mtu: 1500, macAddress: mac(7) },
            ...{
              addresses: ['10.0.3.2/24'],
              nextHops: ['10.0.3.1'],
              subnets: ['10.0.3.0/24'],
              snatAddress: '10.0.3.2',
            },
          }
        : null,
      floatingIps: floating.map((fixedAddress, index) => ({ address: `10.0.3.${100 + index}`, fixedAddress })),
      routes: [{ destination: '198.51.100.0/24', nextHop: '10.0.1.9' }],
    },
  ])

const rule: fc.Arbitrary<Rule> = fc.record({
  direction: fc.constantFrom('ingress', 'egress'),
  version: fc.constantFrom(4, 6),
  protocol: fc.constantFrom(null, 1, 6, 17, 58, 132, 47),
  min: fc.option(fc.integer({ min: 0, max: 255 })),
  max: fc.option(fc.integer({ min: 255, max: 65_535 })),
  remote: fc.oneof(
    fc.constant(null),
    fc.constant({ groupId: uuid(5, 1) }),
    cidr.map(text => ({ cidr: text })),
  ),
})

const anyAddress = fc.oneof(fc.ipV4(), anyV6)
/** Nothing else has an address there. */
const memberAddress = fc.oneof(
  v4In(4),
  byte.map(host => `fd00:4::${host.toString(16)}`),
)
const members = (count: number, address: fc.Arbitrary<string>) =>
  fc.tuple(...Array.from({ length: count }, () => fc.tuple(address, port, fc.boolean(), nastyText())))

/** A load balancer whose texts of its owner's are anything. */
const treeWith = (address: fc.Arbitrary<string>): fc.Arbitrary<LoadBalancerTree> =>
  fc
    .record({
      name: nastyText(),
      adminStateUp: fc.boolean(),
      listeners: fc.array(
        fc.record({
          protocol: fc.constantFrom('TCP' as const, 'UDP' as const, 'SCTP' as const),
          protocolPort: port,
          allowedCidrs: fc.option(fc.array(fc.oneof(cidr, anyCidr), { maxLength: 4 })),
          pool: fc.option(fc.constantFrom(1, 2)),
          adminStateUp: fc.boolean(),
        }),
        { maxLength: 3 },
      ),
      algorithm: fc.constantFrom('SOURCE_IP' as const, 'SOURCE_IP_PORT' as const),
      isMonitored: fc.boolean(),
      timeout: fc.option(fc.integer({ min: 0, max: 65_535 })),
      cookieName: nastyText(),
      members: members(4, address),
    })
    .map(({ name, adminStateUp, listeners, algorithm, isMonitored, timeout, cookieName, members }) => {
      const poolOf = (number: number) =>
        aPool(number, {
          lbAlgorithm: algorithm,
          sessionPersistence: {
            type: 'SOURCE_IP',
            cookieName,
            persistenceTimeout: timeout,
            persistenceGranularity: null,
          },
          healthMonitor: isMonitored ? aMonitor(number, { type: 'TCP' }) : null,
          members: members
            .slice((number - 1) * 2, number * 2)
            .map(([address, protocolPort, up, memberName], index) =>
              aMember(number * 10 + index, { address, protocolPort, adminStateUp: up, name: memberName }),
            ),
        })
      return aTree({
        ...{ provider: 'ovn', name, projectId: name, adminStateUp, pools: [poolOf(1), poolOf(2)] },
        listeners: listeners.map(({ pool, ...listener }, index) =>
          aListener(index + 1, { ...listener, defaultPoolId: pool === null ? null : uuid(3, pool) }),
        ),
      })
    })

type Frontends = { vips: string[]; floatingIps: string[] }

const FRONTENDS: Frontends = { vips: ['10.0.1.200', '2001:db8:1::c8'], floatingIps: ['10.0.3.200'] }

/** Up to three VIPs, which are anywhere, and floating IPs of theirs. */
const frontends: fc.Arbitrary<Frontends> = fc
  .tuple(fc.uniqueArray(anyAddress, { minLength: 1, maxLength: 3 }), fc.uniqueArray(fc.ipV4(), { maxLength: 2 }))
  .map(([vips, floatingIps]) => ({ vips, floatingIps: floatingIps.filter(address => !vips.includes(address)) }))

const factsFor = (
  of: LoadBalancerTree,
  { vips, floatingIps }: Frontends,
  networks: readonly number[],
  routersAround: readonly Router[] = [],
): OvnFacts => ({
  ...{ instance: INSTANCE, entrances: [{ networkId: uuid(8, 3), macAddress: mac(7) }] },
  gatewayRouters: routersAround.filter(({ gateway }) => gateway !== null).map(({ id }) => id),
  vips: vips.map(address => ({ address, networkId: uuid(8, 1) })),
  floatingIps: floatingIps.map(address => ({ address, vip: vips[0]! })),
  clientNetworks: networks.map(number => uuid(8, number)),
  probes: new Map(
    of.pools.flatMap(pool =>
      pool.members.map(member => [
        member.id,
        { portId: uuid(9, 11), source: member.address.includes(':') ? '2001:db8:1::fa' : '10.0.1.250' },
      ]),
    ),
  ),
})

type World = {
  networks: OvnNetwork[]
  ports: OvnPort[]
  routers: Router[]
  filters: Filters
  tree: LoadBalancerTree
  frontends: Frontends
}

const world: fc.Arbitrary<World> = fc
  .record({
    networks: fc.tuple(networkOf(1), networkOf(2), networkOf(3)),
    ports: fc.tuple(portOf(1, 1), portOf(1, 2), portOf(2, 1)),
    routers,
    filtered: fc.subarray([uuid(9, 11), uuid(9, 12), uuid(9, 21)]),
    rules: fc.array(rule, { maxLength: 4 }),
    stateful: fc.boolean(),
    vips: fc.option(fc.constant(['10.0.1.200', '2001:db8:1::c8'])),
    tree: treeWith(fc.oneof(memberAddress, anyAddress)),
    frontends,
  })
  .map(({ filtered, rules, stateful, vips, ...rest }) => ({
    ...rest,
    filters: {
      filters: filtered.map(portId => ({ portId, networkId: uuid(8, 1), vips, groupIds: [uuid(5, 1)], stateful })),
      groups: [{ id: uuid(5, 1), rules, members: rest.ports.map(({ addresses }) => addresses[0]!.address) }],
      shares: [],
    },
  }))

/** All rows, those that hold others first. */
function desiredOf({ networks, ports, routers, filters, tree, frontends }: World): Desired[] {
  const networkOfPort = (of: OvnPort) => networks.find(({ id }) => id === of.networkId)!
  const balancer: OvnPort = {
    ...{ id: uuid(9, 19), networkId: uuid(8, 1), macAddress: mac(5), allowedAddresses: [], pairs: [] },
    ...{ isOpen: false, adminStateUp: true, role: 'balancer' },
    addresses: [
      { address: '10.0.1.251', subnetId: uuid(7, 14) },
      { address: '2001:db8:1::fb', subnetId: uuid(7, 16) },
    ],
  }
  const filtered = new Set(filters.filters.map(({ portId }) => portId))
  return [
    ...networks.map(network => networkRows(network, INSTANCE)),
    ...securityRows(filters, INSTANCE),
    ...routers.map(router => routerRows(router, INSTANCE, [{ name: 'chassis', priority: 1 }])),
    balancerRows(balancer, networks[0]!, routers, INSTANCE),
    ...ports.map(one =>
      portRows(one, networkOfPort(one), INSTANCE, filtered.has(one.id) ? filterHolders(one.id, INSTANCE) : []),
    ),
    loadBalancerRows(tree, factsFor(tree, frontends, [1, 2], routers)),
  ]
}

const HOST = String.raw`(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f:]*::?[0-9a-f:]*)`
const MAC = String.raw`[0-9a-f]{2}(?::[0-9a-f]{2}){5}`
const CIDR = String.raw`${HOST}\/\d{1,3}`
const ADDRESS = String.raw`${HOST}(?:\/\d{1,3})?`
const FIELD = String.raw`(?:ip|ip4|ip6|tcp|udp|sctp|icmp4|icmp6|nd|nd_rs|nd_ra|mldv1|mldv2)(?:\.(?:src|dst|type|code|proto))?`
const OPERAND = String.raw`(?:${FIELD}|ip\.proto|eth\.src|inport|outport|[@$]krater_[0-9a-z_]+|\d+|${ADDRESS}|\{${ADDRESS}(?:, ${ADDRESS})*\})`
/** Expressions of OVN's, as far as Krater needs them. Nothing of it is text that a tenant chooses. */
const MATCH = new RegExp(String.raw`^\(?${OPERAND}\)?(?: (?:==|!=|<=|>=|<|>|&&|\|\|) \(?${OPERAND}\)?)*$`)
/** What keeps clients out that a listener does not allow. */
const ACCESS = new RegExp(
  String.raw`^(?:eth\.dst == ${MAC} && )?ip[46]\.dst == ${HOST} && (?:tcp|udp|sctp)\.dst == \d+(?: && ip[46]\.src == \{${CIDR}(?:, ${CIDR})*\})?$`,
)
/** Elsewhere: ids, addresses, numbers, names of ours and lists of them. */
const PLAIN = /^[A-Za-z0-9_.:/,[\]{} -]*$/
/** The same in rows of load balancers: nothing there is a list of words. */
const WORD = /^[A-Za-z0-9_.:/,[\]-]*$/

const textsIn = (value: unknown): string[] =>
  typeof value === 'string'
    ? [value]
    : Array.isArray(value)
      ? value.flatMap(textsIn)
      : typeof value === 'object' && value !== null
        ? Object.entries(value).flatMap(([key, item]) => [key, ...textsIn(item)])
        : []

t.test('whatever tenants write, rows hold nothing but what OVN is to read', async t => {
  let matches = 0
  fc.assert(
    fc.property(world, all => {
      for (const { owner, rows } of desiredOf(all))
        for (const { table, row } of rows)
          for (const [column, value] of Object.entries(row))
            for (const text of textsIn(value)) {
              const isMatch = table === 'ACL' && column === 'match'
              if (isMatch) matches += 1
              const grammar = loadBalancerOf(owner) === null ? (isMatch ? MATCH : PLAIN) : isMatch ? ACCESS : WORD
              if (!grammar.test(text)) throw new Error(`${table} ${column}: ${text}`)
            }
    }),
    { numRuns: 150 },
  )
  t.ok(matches > 100, `${matches} matches`)
})

t.test('the same tables always give the same rows, each owner’s own', async () => {
  fc.assert(
    fc.property(world, all => {
      const rows = desiredOf(all)
      const ids = rows.flatMap(desired => desired.rows.map(row => row.uuid))
      return JSON.stringify(rows) === JSON.stringify(desiredOf(all)) && new Set(ids).size === ids.length
    }),
    { numRuns: 50 },
  )
})

t.test('rows that have been made leave nothing to do, and one plan leads from any rows to any others', async t => {
  fc.assert(
    fc.property(world, world, (first, second) => {
      const database = new MemoryNorthbound(INSTANCE)
      for (const all of [first, second]) {
        // What is gone goes first, as the owners of rows do.
        const desired = desiredOf(all)
        const owners = new Set(desired.map(({ owner }) => owner))
        for (const owner of database.index.owners().filter(one => !owners.has(one)))
          database.carryOut(database.plan(owner, []))
        // Rows wait for those that hold them.
        for (let pass = 0; pass < 2; pass++)
          for (const { owner, rows } of desired) database.carryOut(database.plan(owner, rows))
        for (const { owner, rows } of desired) {
          const { operations, missingHolders } = database.plan(owner, rows)
          t.same(operations, [], owner)
          t.same(missingHolders, [], owner)
        }
      }
      const fresh = new MemoryNorthbound(INSTANCE)
      for (const { owner, rows } of desiredOf(second)) fresh.carryOut(fresh.plan(owner, rows))
      t.same(database.all, fresh.all)
      for (const owner of database.index.owners()) {
        const standing = database.index.rowsOf(owner).length
        const plan = database.plan(owner, [])
        t.equal(plan.differences.filter(({ kind }) => kind === 'superfluous').length, standing, `${owner}: all go`)
        database.carryOut(plan)
      }
      t.same(database.all, [], 'nothing is left without owners')
    }),
    { numRuns: 25 },
  )
})

const mentionOf = (address: string): RegExp =>
  new RegExp(String.raw`(?<![0-9a-f.:])${address.replaceAll('.', String.raw`\.`)}(?![0-9a-f.]|:[0-9a-f]+\])`)

t.test('rows without an object say nothing of it', async t => {
  fc.assert(
    fc.property(treeWith(memberAddress), fc.constantFrom(1, 2, 3), (full, number) => {
      const facts = factsFor(full, FRONTENDS, [1, 2])
      const says = (of: LoadBalancerTree) => JSON.stringify(loadBalancerRows(of, facts).rows)
      const listenerId = uuid(2, number)
      const without = (keep: (id: string) => boolean) => ({
        ...full,
        listeners: full.listeners.filter(({ id }) => keep(id)),
      })
      t.notOk(says(without(id => id !== listenerId)).includes(listenerId), 'a listener')
      const dying = full.listeners.map(one => (one.id === listenerId ? { ...one, change: 'delete' as const } : one))
      t.equal(says({ ...full, listeners: dying }), says(without(id => id !== listenerId)), 'nor one that is to go')
      const gone = full.pools.flatMap(pool => pool.members).filter((_, index) => index % 3 === number - 1)
      const pools = full.pools.map(pool => ({ ...pool, members: pool.members.filter(one => !gone.includes(one)) }))
      const left = new Set(pools.flatMap(pool => pool.members.map(({ address }) => address)))
      for (const { address } of gone)
        if (!left.has(address)) t.notMatch(says({ ...full, pools }), mentionOf(address), 'a member')
      t.notMatch(says({ ...full, pools: [] }), /10\.0\.4\.|fd00:4:/, 'a pool')
    }),
    { numRuns: 60 },
  )
})
