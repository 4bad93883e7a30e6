import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type Desired, desiredSchema, type HaproxyPart } from '../../../amphora-agent/protocol/desired.js'
import { shareConnections } from '../../../controller/load-balancer/tree/capacity.js'
import type { ListenerNode, LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import type { AmphoraFacts } from '../../../controller/provider/amphora/rendering/facts.js'
import { renderInterfaces } from '../../../controller/provider/amphora/rendering/keepalived/interfaces.js'
import { goldenCases } from '../../golden/cases.js'
import {
  aDualStackVipInterface,
  aListener,
  aMember,
  aMemberInterface,
  aMonitor,
  aPool,
  aTree,
  aVipInterface,
  IPV6_VIP,
  someFacts,
  uuid,
} from '../../golden/models.js'

const golden = join(import.meta.dirname, '../../golden')
const rewrite = process.env.KRATER_UPDATE_GOLDEN === '1'

for (const { name, tree, facts } of goldenCases) {
  t.test(`golden: ${name}`, async t => {
    const desired = renderDesired(tree, facts)
    compare(t, `${name}.cfg`, desired.haproxy?.text)
    compare(t, `${name}.keepalived.conf`, desired.keepalived?.text)
    compare(t, `${name}.tls.json`, tlsText(desired.haproxy))
    compare(t, `${name}.datagrams.json`, datagramsText(desired))
    t.same(desiredSchema.parse(desired), desired, 'the agent’s schema accepts it unchanged')
  })
}

t.test('a load balancer with nothing to serve has no HAProxy and no numbered objects', async t => {
  const served = servedTree()
  const idle: Partial<LoadBalancerTree>[] = [
    { adminStateUp: false },
    { change: 'delete' },
    { listeners: [] },
    { listeners: served.listeners.map(listener => ({ ...listener, adminStateUp: false })) },
    { listeners: served.listeners.map(listener => ({ ...listener, change: 'delete' })) },
  ]
  for (const change of idle) {
    const { haproxy, objects } = renderDesired({ ...served, ...change }, someFacts())
    t.equal(haproxy, null, JSON.stringify(change).slice(0, 60))
    t.same(objects, { listeners: [], pools: [] })
  }
})

t.test('objects are numbered in the order of the configuration', async t => {
  const { haproxy, objects } = renderDesired(servedTree(), someFacts())
  t.same(objects, {
    listeners: [uuid(2, 1), uuid(2, 2)],
    pools: [
      { poolId: uuid(3, 1), listenerId: uuid(2, 1), members: [uuid(4, 1), uuid(4, 2), uuid(4, 3)] },
      { poolId: uuid(3, 1), listenerId: uuid(2, 2), members: [uuid(4, 1), uuid(4, 2), uuid(4, 3)] },
    ],
  })
  t.same(
    haproxy?.backends.map(backend => backend.name),
    objects.pools.map(({ poolId, listenerId }) => `${poolId}:${listenerId}`),
  )
})

t.test('structured servers match the server lines of the configuration file', async t => {
  const { haproxy } = renderDesired(servedTree(), someFacts())
  const lines = haproxy?.text.match(/^ {4}server .*$/gm) ?? []
  const structured = haproxy?.backends.flatMap(({ servers }) =>
    servers.map(server =>
      [
        `    server ${server.name} ${server.address}:${server.port} id ${server.number} weight ${server.weight}`,
        ...(server.backup ? ['backup'] : []),
        ...(server.disabled ? ['disabled'] : []),
        ...server.options,
      ].join(' '),
    ),
  )
  t.equal(lines.length, 6)
  t.same(lines, structured)
})

t.test('hashes change with what they cover', async t => {
  const before = renderDesired(servedTree(), someFacts())
  const withPool = (change: object) => {
    const tree = servedTree()
    return renderDesired({ ...tree, pools: tree.pools.map(pool => ({ ...pool, ...change })) }, someFacts())
  }
  const weight = withPool({ members: [aMember(1, { weight: 200 }), aMember(2), aMember(3)] })
  t.not(weight.sha256, before.sha256)
  t.not(weight.haproxy?.sha256, before.haproxy?.sha256)
  t.equal(weight.haproxy?.skeletonSha256, before.haproxy?.skeletonSha256, 'the skeleton excludes server lines')

  const limitOf = (connectionLimit: number) => {
    const tree = servedTree()
    const listeners = tree.listeners.map(listener => ({ ...listener, connectionLimit }))
    return renderDesired({ ...tree, listeners }, someFacts()).haproxy
  }
  t.not(limitOf(7)?.sha256, limitOf(8)?.sha256)
  t.equal(limitOf(7)?.skeletonSha256, limitOf(-1)?.skeletonSha256, 'the skeleton excludes connection limits')
  t.not(limitOf(7)?.skeletonSha256, limitOf(0)?.skeletonSha256, 'a listener that admits no connection')

  const algorithm = withPool({ lbAlgorithm: 'LEAST_CONNECTIONS' })
  t.not(algorithm.haproxy?.skeletonSha256, before.haproxy?.skeletonSha256)

  const later = renderDesired(servedTree({ generation: 8, name: 'other' }), someFacts({ fence: 9 }))
  t.match(later, { generation: 8, fence: 9, sha256: before.sha256 }, 'generation and fence are not hashed')

  const moved = renderDesired(servedTree(), someFacts({ interfaces: [{ ...aVipInterface(), mtu: 9000 }] }))
  t.not(moved.sha256, before.sha256, 'interfaces are hashed')
  t.equal(moved.haproxy?.sha256, before.haproxy?.sha256)
})

t.test('property: the order of rows does not matter, and rendering does not change its input', async t => {
  const tree = servedTree({ topology: 'ACTIVE_STANDBY' })
  const facts = someFacts({
    interfaces: [aDualStackVipInterface(), aMemberInterface()],
    pair: { priority: 100, vrrpAddress: '203.0.113.21', peers: [aPeer(2), aPeer(3)] },
  })
  const pair = facts.pair
  if (pair === null) return t.fail()
  const expected = JSON.stringify(renderDesired(tree, facts))
  const shuffled = <T>(items: readonly T[]) =>
    fc.shuffledSubarray([...items], { minLength: items.length, maxLength: items.length })
  fc.assert(
    fc.property(
      shuffled(tree.listeners),
      shuffled(tree.pools),
      shuffled(tree.pools[0]?.members ?? []),
      shuffled(facts.interfaces),
      shuffled(aDualStackVipInterface().subnets),
      shuffled(pair.peers),
      (listeners, pools, members, interfaces, subnets, peers) => {
        const mixedTree = {
          ...tree,
          listeners,
          pools: pools.map(pool => (pool.id === uuid(3, 1) ? { ...pool, members } : pool)),
        }
        const mixedFacts: AmphoraFacts = {
          ...facts,
          interfaces: interfaces.map(nic => (nic.purpose === 'vip' ? { ...nic, subnets } : nic)),
          pair: { ...pair, peers },
        }
        const input = JSON.stringify([mixedTree, mixedFacts])
        const text = JSON.stringify(renderDesired(mixedTree, mixedFacts))
        return text === expected && JSON.stringify([mixedTree, mixedFacts]) === input
      },
    ),
  )
  t.pass()
})

t.test('maxconn is the requested limit; unlimited listeners share what the machine allows', async t => {
  const limits = (connectionLimits: number[], openFiles: number) => {
    const listeners = connectionLimits.map((connectionLimit, index) => aListener(index + 1, { connectionLimit }))
    const facts = someFacts({ limits: { openFiles, memoryBytes: 24 * 1024 ** 3 } })
    const text = renderDesired(aTree({ listeners }), facts).haproxy?.text ?? ''
    return [...text.matchAll(/^ {4}maxconn (\d+)$/gm)].map(match => Number(match[1]))
  }
  t.same(limits([10, 20], 20_000), [9_149, 10, 20], 'the total, then each listener')
  t.same(limits([-1, 20], 20_000), [9_149, 9_129, 20])
  t.same(limits([-1, -1, -1], 20_000), [9_148, 3_049, 3_049, 3_049], 'a full listener leaves room for the others')
  t.same(limits([-1, 60_000], 1_048_576), [314_172, 50_000, 60_000])
  const [total = 0, ...each] = limits([50_000, 25_000, 1, 0], 20_000)
  t.ok(total <= 9_999 && total > 8_000, `limits beyond the machine are scaled down to ${total}`)
  const [most = 0, half = 0] = each
  t.ok(Math.abs(most - 2 * half) <= 1 && most + half <= total, 'all by the same factor')
  t.same(each.slice(2), [1, 1], 'minimal limits remain')
  t.same(limits([0], 20_000), [9_149, 1])
  const closed = renderDesired(aTree({ listeners: [aListener(1, { connectionLimit: 0 })] }), someFacts())
  t.match(closed.haproxy?.text, /^ {4}tcp-request connection reject$/m, 'a limit of 0 admits no connection')
})

t.test('a monitored member that joins changes only servers', async t => {
  const skeleton = (count: number) => {
    const members = Array.from({ length: count }, (_, index) => aMember(index + 1, { serverNumber: index + 1 }))
    const pools = [aPool(1, { healthMonitor: aMonitor(1), members })]
    const tree = aTree({ listeners: [aListener(1, { defaultPoolId: uuid(3, 1) })], pools })
    return renderDesired(tree, someFacts()).haproxy?.skeletonSha256
  }
  t.equal(skeleton(0), skeleton(1))
  t.equal(skeleton(1), skeleton(50))
})

t.test('health checks reduce the open files left for connections', async t => {
  const machine = { openFiles: 20_000, memoryBytes: 24 * 1024 ** 3 }
  const demand = { connectionLimits: [-1, 100], vips: 2, checks: 0 }
  t.same(shareConnections(machine, demand), { total: 9_148, unlimited: 9_048 })
  t.same(shareConnections(machine, { ...demand, checks: 10_000 }), { total: 4_148, unlimited: 4_048 })
  const memory = { ...machine, memoryBytes: 80 * 1024 * 1_000 }
  t.same(shareConnections(memory, demand), { total: 600, unlimited: 500 }, 'less memory reduces them too')
  t.match(shareConnections(machine, { ...demand, checks: 19_500 }), {
    excess: /limits of 100 in all and 19500 monitored .* limits of 0 in all fit; with these limits, 17999 monitored/,
  })
  t.match(shareConnections(machine, { ...demand, checks: 17_999 }), { unlimited: 548 })
  t.same(
    shareConnections(machine, { ...demand, checks: 999 }),
    shareConnections(machine, demand),
    'small changes of the member count have no effect',
  )
})

t.test('an old HAProxy is refused', async t => {
  for (const haproxyVersion of ['2.5.9', '1.9', 'unknown', '']) {
    t.throws(() => renderDesired(servedTree(), someFacts({ haproxyVersion })), { code: 'haproxy-too-old' })
  }
  for (const haproxyVersion of ['2.6.0', '2.10', '3.0.5-1', '3.2-dev1']) {
    t.doesNotThrow(() => renderDesired(servedTree(), someFacts({ haproxyVersion })))
  }
})

/** The words of the bind line of a listener that terminates TLS. */
function bindOf(change: Partial<ListenerNode>, facts: Partial<AmphoraFacts> = {}): string {
  const listener = aListener(1, { protocol: 'TERMINATED_HTTPS', sniContainerRefs: [secret(1)], ...change })
  const text = renderDesired(aTree({ listeners: [listener] }), someFacts(facts)).haproxy?.text ?? ''
  return /^ {4}bind (.*)$/m.exec(text)?.[1] ?? ''
}

const secret = (number: number) => `https://keys.example/v1/secrets/${uuid(8, number)}`

t.test('TLS versions are a range without gaps, for HAProxy ignores anything else', async t => {
  const rangeOf = (tlsVersions: ListenerNode['tlsVersions']) =>
    /ssl-min-ver (\S+) ssl-max-ver (\S+)/.exec(bindOf({ tlsVersions }))?.slice(1)
  t.same(rangeOf(null), ['TLSv1.2', 'TLSv1.3'])
  t.same(rangeOf(['TLSv1.3']), ['TLSv1.3', 'TLSv1.3'])
  t.same(rangeOf(['TLSv1.2', 'TLSv1', 'TLSv1.1', 'SSLv3']), ['TLSv1.0', 'TLSv1.2'])
  t.same(rangeOf(['SSLv3', 'TLSv1.2']), ['TLSv1.2', 'TLSv1.2'])
  const refused: [ListenerNode['tlsVersions'], RegExp][] = [
    [['TLSv1', 'TLSv1.2', 'TLSv1.3'], /Listener .*, tls_versions leaves out TLSv1.1 between others/],
    [['TLSv1.3', 'TLSv1.1'], /leaves out TLSv1.2/],
    [['SSLv3'], /allows only SSLv3/],
  ]
  for (const [versions, message] of refused) {
    t.throws(() => rangeOf(versions), { code: 'configuration-refused', message }, String(versions))
  }
})

t.test('a cipher string is split into suites of TLS 1.3 and what is older', async t => {
  const ciphersOf = (tlsCiphers: string | null, tlsVersions: ListenerNode['tlsVersions'] = null) =>
    bindOf({ tlsCiphers, tlsVersions }).match(/(?<= )(ciphers|ciphersuites) \S+/g) ?? []
  t.same(ciphersOf('TLS_A:B:!C:TLS_D'), ['ciphers B:!C', 'ciphersuites TLS_A:TLS_D'])
  t.same(ciphersOf('B'), ['ciphers B'])
  t.same(ciphersOf('TLS_A'), ['ciphersuites TLS_A'])
  t.same(ciphersOf('B:TLS_A', ['TLSv1.1', 'TLSv1.2']), ['ciphers B:@SECLEVEL=0', 'ciphersuites TLS_A'])
  t.same(ciphersOf('TLS_A', ['TLSv1']), ['ciphers DEFAULT:@SECLEVEL=0', 'ciphersuites TLS_A'])
  t.match(ciphersOf(null), [/^ciphers ECDHE-/, /^ciphersuites TLS_AES_/], 'never what OpenSSL allows on its own')
})

t.test('an application protocol is offered if the listener has one, in its order', async t => {
  const alpnOf = (alpnProtocols: ListenerNode['alpnProtocols'], haproxyVersion = '2.6.12') =>
    bindOf({ alpnProtocols }, { haproxyVersion }).match(/(no-)?alpn.*/)?.[0] ?? null
  t.equal(alpnOf(['http/1.1', 'h2']), 'alpn http/1.1,h2')
  t.equal(alpnOf(null), null)
  t.equal(alpnOf(null, '2.8.3'), 'no-alpn', 'newer HAProxys offer HTTP/2 on their own')
  t.equal(alpnOf(['h2'], '2.8.3'), 'alpn h2')
})

t.test('a reference that names nothing is no path', async t => {
  for (const ref of ['x', '../secrets/x', `${secret(1)}/..`]) {
    t.throws(() => bindOf({ sniContainerRefs: [secret(1), ref] }), { code: 'configuration-refused' }, ref)
  }
})

t.test('the VIP is rendered on its interface, for a pair too', async t => {
  const facts = someFacts({ interfaces: [aMemberInterface(), aVipInterface()] })
  t.same(renderInterfaces(servedTree(), facts), [
    {
      mac: 'fa:16:3e:00:00:01',
      name: 'eth-a1b2c3d4',
      mtu: 1500,
      addresses: ['203.0.113.21/24'],
      routes: [{ destination: '0.0.0.0/0', gateway: '203.0.113.1' }],
      vips: [{ address: '203.0.113.10', subnet: '203.0.113.0/24', gateway: '203.0.113.1' }],
    },
    {
      mac: 'fa:16:3e:00:00:02',
      name: 'eth-e5f60718',
      mtu: 1450,
      addresses: ['192.0.2.250/24'],
      routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.9' }],
      vips: [],
    },
  ])
  const pair = { priority: 100, vrrpAddress: '203.0.113.21', peers: [aPeer(2)] }
  const [nic] = renderInterfaces(servedTree({ topology: 'ACTIVE_STANDBY' }), { ...facts, pair })
  t.same(nic?.vips, [{ address: '203.0.113.10', subnet: '203.0.113.0/24', gateway: '203.0.113.1' }])
})

t.test('a dual-stack interface has a default route per family, and host routes', async t => {
  const [nic] = renderInterfaces(servedTree(IPV6_VIP), someFacts({ interfaces: [aDualStackVipInterface()] }))
  t.same(nic?.addresses, ['2001:db8:1::21/64', '203.0.113.21/24'])
  t.same(nic?.routes, [
    { destination: '0.0.0.0/0', gateway: '203.0.113.1' },
    { destination: '::/0', gateway: '2001:db8:1::1' },
    { destination: '2001:db8:ffff::/48', gateway: '2001:db8:1::9' },
  ])
  t.same(nic?.vips, [{ address: '2001:db8:1::10', subnet: '2001:db8:1::/64', gateway: '2001:db8:1::1' }])
})

t.test('a subnet without a gateway has no default route and no VIP gateway', async t => {
  const nic = aVipInterface()
  const subnets = nic.subnets.map(subnet => ({ ...subnet, gatewayIp: null }))
  const [rendered] = renderInterfaces(servedTree(), someFacts({ interfaces: [{ ...nic, subnets }] }))
  t.same(rendered?.routes, [])
  t.equal(rendered?.vips[0]?.gateway, null)
})

t.test('missing facts are refused with a fault code', async t => {
  const pairTree = servedTree({ topology: 'ACTIVE_STANDBY' })
  const pair = { priority: 100, vrrpAddress: '203.0.113.21', peers: [aPeer(2)] }
  const cases: [string, LoadBalancerTree, Partial<AmphoraFacts>][] = [
    ['vip-not-plugged', servedTree(), { interfaces: [] }],
    ['vip-not-plugged', servedTree(), { interfaces: [aMemberInterface()] }],
    ['vip-not-plugged', servedTree(IPV6_VIP), {}],
    ['pair-incomplete', pairTree, { pair: null }],
    ['pair-incomplete', pairTree, { pair: { ...pair, peers: [] } }],
    ['pair-family', pairTree, { pair: { ...pair, vrrpAddress: '2001:db8:1::21' } }],
    ['configuration-refused', pairTree, { pair: { ...pair, priority: 255 } }],
  ]
  for (const [code, tree, facts] of cases) {
    t.throws(() => renderDesired(tree, someFacts(facts)), { name: 'ProvisioningFault', code }, code)
  }
})

t.test('fifty listeners with twenty members each are rendered; the time is recorded', async t => {
  const numbers = Array.from({ length: 50 }, (_, index) => index + 1)
  const tree = aTree({
    listeners: numbers.map(number => aListener(number, { defaultPoolId: uuid(3, number) })),
    pools: numbers.map(number =>
      aPool(number, {
        healthMonitor: aMonitor(number),
        members: Array.from({ length: 20 }, (_, index) =>
          aMember(number * 100 + index, { address: `10.0.${number}.${index}` }),
        ),
      }),
    ),
  })
  renderDesired(tree, someFacts())
  const started = performance.now()
  const { haproxy } = renderDesired(tree, someFacts())
  t.comment(`rendered in ${(performance.now() - started).toFixed(1)} ms, ${haproxy?.text.length} bytes`)
  t.equal(haproxy?.text.match(/^ {4}server /gm)?.length, 1000)
})

/** Two listeners that share a pool of three members, and an unused pool. */
function servedTree(change: Partial<LoadBalancerTree> = {}): LoadBalancerTree {
  return aTree({
    listeners: [
      aListener(1, { defaultPoolId: uuid(3, 1) }),
      aListener(2, { defaultPoolId: uuid(3, 1), protocol: 'TCP' }),
    ],
    pools: [
      aPool(1, {
        healthMonitor: aMonitor(1),
        members: [aMember(1, { weight: 7 }), aMember(2, { backup: true }), aMember(3, { adminStateUp: false })],
      }),
      aPool(2, { members: [aMember(9)] }),
    ],
    ...change,
  })
}

/** The files of TLS, one a line; undefined without. */
function tlsText(haproxy: HaproxyPart | null): string | undefined {
  const { files, lists } = haproxy?.tls ?? { files: [], lists: [] }
  const lines = (values: readonly object[]) => values.map(value => `    ${JSON.stringify(value)}`).join(',\n')
  if (files.length === 0) return undefined
  return `{\n  "files": [\n${lines(files)}\n  ],\n  "lists": [\n${lines(lists)}\n  ]\n}\n`
}

/** What the agent balances itself, and the numbering of all objects; undefined without. */
function datagramsText({ datagrams, objects }: Desired): string | undefined {
  return datagrams ? `${JSON.stringify({ datagrams, objects }, null, 2)}\n` : undefined
}

const aPeer = (number: number) => ({ amphoraId: uuid(6, number), address: `203.0.113.2${number}` })

function compare(t: Test, file: string, text: string | undefined): void {
  if (text === undefined) return
  const path = join(golden, file)
  if (rewrite) writeFileSync(path, text)
  t.equal(
    text,
    readFileSync(path, 'utf8'),
    `${file}; after an intended change, run this file with KRATER_UPDATE_GOLDEN=1`,
  )
}
