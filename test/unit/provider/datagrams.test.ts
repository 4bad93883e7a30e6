import fc from 'fast-check'
import t from 'tap'
import { desiredSchema } from '../../../amphora-agent/protocol/desired.js'
import { readExchange } from '../../../controller/load-balancer/objects/health-monitors/exchange.js'
import { shareFlows } from '../../../controller/load-balancer/tree/flow-capacity.js'
import type { ListenerNode, LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { servesAll } from '../../../controller/provider/amphora/plan/plan-unreachable.js'
import { flowShortage } from '../../../controller/provider/amphora/rendering/datagrams/datagrams.js'
import { renderDesired, shortageOf } from '../../../controller/provider/amphora/rendering/desired.js'
import { aListener, aMember, aMonitor, aPool, aTree, someFacts, uuid } from '../../golden/models.js'

const MACHINE = { openFiles: 18_300, memoryBytes: 24 * 1024 ** 3 }

/** An HTTP and two UDP listeners, which share a pool. */
const balanced = (change: Partial<LoadBalancerTree> = {}): LoadBalancerTree =>
  aTree({
    listeners: [
      aListener(1, { defaultPoolId: uuid(3, 1) }),
      aListener(2, { protocol: 'UDP', defaultPoolId: uuid(3, 2) }),
      aListener(3, { protocol: 'UDP', defaultPoolId: uuid(3, 2) }),
    ],
    pools: [
      aPool(1, { members: [aMember(1)] }),
      aPool(2, { protocol: 'UDP', members: [aMember(2), aMember(3), aMember(4)] }),
    ],
    ...change,
  })

t.test('an older agent gets what it knows, under the digest that it has had', async t => {
  const older = someFacts({ balancesDatagrams: false })
  const http = balanced({ listeners: balanced().listeners.slice(0, 1) })
  t.notOk('datagrams' in renderDesired(http, older))
  t.match(renderDesired(balanced(), older), { objects: renderDesired(http, older).objects })
  t.equal(renderDesired(balanced(), older).sha256, renderDesired(http, older).sha256)
  t.equal(renderDesired(http, someFacts()).datagrams, null, 'a newer one is told that there is nothing to balance')
})

t.test('the digest covers what the agent balances', async t => {
  const before = renderDesired(balanced(), someFacts())
  const [http, pool] = balanced().pools
  if (http === undefined || pool === undefined) return t.fail()
  const heavier = { ...pool, members: [aMember(2, { weight: 2 }), ...pool.members.slice(1)] }
  const after = renderDesired(balanced({ pools: [http, heavier] }), someFacts())
  t.not(after.sha256, before.sha256)
  t.equal(after.haproxy?.sha256, before.haproxy?.sha256, 'HAProxy does not notice')
})

t.test('nothing is balanced for a disabled load balancer, or one without an enabled listener', async t => {
  const idle: Partial<LoadBalancerTree>[] = [
    { adminStateUp: false },
    { change: 'delete' },
    { listeners: balanced().listeners.map(listener => ({ ...listener, adminStateUp: false })) },
  ]
  for (const change of idle) {
    const { datagrams, objects } = renderDesired(balanced(change), someFacts())
    t.same([datagrams, objects], [null, { listeners: [], pools: [] }])
  }
})

t.test('property: the order of rows does not matter, and rendering does not change its input', async t => {
  const tree = balanced()
  const expected = JSON.stringify(renderDesired(tree, someFacts()))
  const shuffled = <T>(items: readonly T[]) =>
    fc.shuffledSubarray([...items], { minLength: items.length, maxLength: items.length })
  fc.assert(
    fc.property(
      shuffled(tree.listeners),
      shuffled(tree.pools),
      shuffled(tree.pools[1]?.members ?? []),
      (listeners, pools, members) => {
        const mixed = {
          ...tree,
          listeners,
          pools: pools.map(pool => (pool.id === uuid(3, 2) ? { ...pool, members } : pool)),
        }
        const input = JSON.stringify(mixed)
        return JSON.stringify(renderDesired(mixed, someFacts())) === expected && JSON.stringify(mixed) === input
      },
    ),
  )
  t.pass()
})

t.test('a monitor that no agent could carry out is refused', async t => {
  const refused: [Parameters<typeof aMonitor>[1], RegExp][] = [
    [{ type: 'HTTPS' }, /type cannot be HTTPS for UDP or SCTP/],
    [{ type: 'TLS-HELLO' }, /type cannot be TLS-HELLO/],
    [{ type: 'UDP-CONNECT', urlPath: '/%4' }, /url_path has a %/],
    [{ type: 'HTTP', urlPath: '/a b' }, /url_path must start with/],
  ]
  for (const [change, message] of refused) {
    const pool = aPool(2, { protocol: 'UDP', healthMonitor: aMonitor(1, change) })
    t.throws(() => renderDesired(balanced({ pools: [pool] }), someFacts()), { code: 'configuration-refused', message })
  }
  for (const type of ['UDP-CONNECT', 'SCTP', 'TCP', 'HTTP', 'PING'] as const) {
    const pool = aPool(2, { protocol: 'UDP', healthMonitor: aMonitor(1, { type }) })
    t.doesNotThrow(() => desiredSchema.parse(renderDesired(balanced({ pools: [pool] }), someFacts())), type)
  }
})

t.test('an unreachable amphora serves if it has what its listeners need, and a part while a change waits', async t => {
  const [http, udp] = [aListener(1), aListener(2, { protocol: 'UDP' })]
  const off = { ...http, adminStateUp: false }
  const cases: [ListenerNode[], [serves: boolean, forwards: boolean], settled: boolean, waiting: boolean][] = [
    [[http], [true, false], true, true],
    [[http], [false, false], false, false],
    [[http], [false, true], false, true],
    [[udp], [false, true], true, true],
    [[udp], [true, false], false, true],
    [[udp, off], [false, true], true, true],
    [[http, udp], [true, true], true, true],
    [[http, udp], [true, false], false, true],
    [[http, udp], [false, true], false, true],
    [[off], [true, true], false, true],
  ]
  for (const [listeners, [serves, forwards], settled, waiting] of cases) {
    const about = JSON.stringify([listeners.map(({ protocol }) => protocol), serves, forwards])
    const at = (generation: number) =>
      servesAll(aTree({ listeners, generation, appliedGeneration: 6 }), { serves, forwards })
    t.same([at(6), at(7)], [settled, waiting], about)
  }
})

t.test('what a probe sends and expects is percent-encoded in the path', async t => {
  const read = (path: string) => {
    const exchange = readExchange(path)
    return 'problem' in exchange
      ? exchange.problem
      : [exchange.payload.toString('latin1'), exchange.answer.toString('latin1')]
  }
  t.same(read('/'), ['', ''])
  t.same(read('/ping'), ['ping', ''])
  t.same(read('/ping?'), ['ping', ''])
  t.same(read('/?pong'), ['', 'pong'])
  t.same(read('/a/b?c?d/e'), ['a/b', 'c?d/e'], 'the first question mark separates')
  t.same(read('/%00%fF%3f?%25'), ['\0\xff?', '%'])
  for (const path of ['/%', '/%4', '/%4g', '/a?%', '/%%41']) t.match(read(path), /two hexadecimal digits/, path)
  t.same(read(`/${'a'.repeat(1_024)}?${'%41'.repeat(1_024)}`), ['a'.repeat(1_024), 'A'.repeat(1_024)])
  for (const path of [`/${'a'.repeat(1_025)}`, `/?${'%41'.repeat(1_025)}`]) t.match(read(path), /more than 1024 bytes/)
  const encoded = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex').replaceAll(/../g, '%$&')
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.uint8Array({ maxLength: 300 }), (payload, answer) => {
      const exchange = readExchange(`/${encoded(payload)}?${encoded(answer)}`)
      return !('problem' in exchange) && exchange.payload.equals(payload) && exchange.answer.equals(answer)
    }),
  )
})

t.test('limits of flows must fit the connection tracking; listeners without one leave room for the others', async t => {
  const machine = { ...MACHINE, flows: 10_000 }
  const all = { factor: 1, excess: null }
  t.same(shareFlows(machine, [-1, -1]), { ...all, unlimited: null }, 'nobody has a limit that needs protection')
  t.same(shareFlows(machine, [-1, 0]), { ...all, unlimited: null })
  t.same(shareFlows(machine, [1_000, -1, -1]), { ...all, unlimited: 4_000 })
  t.same(shareFlows(machine, [9_000]), { ...all, unlimited: null })
  t.match(shareFlows(machine, [9_000, -1]), {
    excess: /limits of 9000 in all for UDP and SCTP. Limits of 8900 in all fit/,
  })
  const { factor, unlimited } = shareFlows(machine, [17_800, -1, -1])
  t.same([factor, unlimited], [0.5, 50], 'all by the same factor')
  t.match(
    shareFlows(MACHINE, [58_983]),
    { excess: /Limits of 58982 / },
    'an agent that reports no limit has the smallest',
  )
  const listeners: ListenerNode[] = [
    aListener(1, { connectionLimit: 8_000 }),
    aListener(2, { protocol: 'UDP', connectionLimit: 9_000 }),
  ]
  const tree = aTree({ listeners })
  t.equal(shortageOf(tree, machine), null, 'connections and flows do not share')
  t.match(shortageOf(aTree({ listeners: [...listeners, aListener(3, { protocol: 'SCTP' })] }), machine), /UDP and SCTP/)
  t.equal(flowShortage(aTree({ listeners, adminStateUp: false }), { ...machine, flows: 1 }), null)
})
