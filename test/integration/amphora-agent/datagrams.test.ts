import t from 'tap'
import { abortPacket, initPacket, readInitAnswer } from '../../../amphora-agent/datagrams/monitors/sctp.js'
import { until } from '../../support/worlds/amphora.js'
import {
  createDatagramWorld,
  FAR_CLIENT,
  FAR_CLIENT6,
  MEMBER_INTERFACE,
  OWN,
  OWN6,
  VIP,
  VIP_INTERFACE,
  VIP6,
} from '../../support/worlds/datagram-amphora.js'
import {
  datagramListener as listener,
  datagramMember as member,
  datagramPool as pool,
  poolId,
} from '../../support/worlds/datagrams-desired.js'

const world = await createDatagramWorld()
t.teardown(world.end)
const { apply, ask, tally, flow, amphora } = world

const { startSctpMembers, initiate } = world

const both = () => [member(1), member(2)]
const sizeOf = (answers: readonly string[], name: string) => answers.filter(answer => answer === name).length

t.test('datagrams to a VIP of either family reach the members in turn, from the amphora’s own address', async t => {
  const pools = [
    pool(
      1,
      [1, 2, 101, 102].map(number => member(number)),
    ),
  ]
  t.match(await apply([listener(1)], pools), { transition: 'runtime' })
  t.strictSame(await tally(10), { [`member-1 ${OWN}`]: 5, [`member-2 ${OWN}`]: 5 })
  t.strictSame(await tally(10, { to: VIP6 }), { [`member-101 ${OWN6}`]: 5, [`member-102 ${OWN6}`]: 5 })
  t.match(await apply([listener(1)], pools), { transition: 'unchanged' })
  t.strictSame(await tally(1, { port: 54 }), { ECONNREFUSED: 1 }, 'a port without a listener refuses')
  for (const to of [VIP, VIP6]) world.ping(to)
  const tracked = amphora.inside('conntrack', '-L').trim().split('\n')
  t.ok(tracked.length > 10, 'a new flow may have the port of a former one')
  t.strictSame(
    tracked.filter(line => / mark=0 /.test(line)),
    [],
    'heartbeats, pings and what nobody serves cannot fill the table of connections',
  )
})

t.test('a client beyond the VIP’s gateway gets its answers by that gateway, whatever the other routes', async t => {
  const elsewhere = { ...MEMBER_INTERFACE, routes: [{ destination: '192.0.2.0/24', gateway: '10.66.1.1' }] }
  await apply([listener(1)], [pool(1, [member(1)])], { interfaces: [VIP_INTERFACE, elsewhere] })
  t.strictSame(await tally(2, { from: FAR_CLIENT }), { [`member-1 ${OWN}`]: 2 })
})

t.test('large datagrams come through, and whoever sends too large a packet learns of it', async t => {
  const VIA = [
    { destination: '0.0.0.0/0', gateway: '10.66.0.2' },
    { destination: '::/0', gateway: 'fd66::2' },
  ]
  const interfaces = [
    { ...VIP_INTERFACE, routes: VIA },
    { ...MEMBER_INTERFACE, mtu: 1280 },
  ]
  world.memberNetwork.ip('link', 'set', 'c0', 'mtu', '1280')
  t.teardown(() => world.memberNetwork.ip('link', 'set', 'c0', 'mtu', '1500'))
  await apply([listener(1)], [pool(1, [member(1), member(101)])], { interfaces })
  for (const [to, from, name] of [
    [VIP, FAR_CLIENT, 'member-1'],
    [VIP6, FAR_CLIENT6, 'member-101'],
  ] as const) {
    t.strictSame(await ask(2, { to, from, size: 1_400 }), ['EMSGSIZE', name], 'the client sends fragments at once')
    t.strictSame(await ask(2, { to, from, size: 4_000 }), [name, name])
  }
  const closed = [member(1, { port: 5_301 }), member(101, { port: 5_301 })]
  await apply([listener(1)], [pool(1, closed)], { interfaces })
  for (const [to, from] of [
    [VIP, FAR_CLIENT],
    [VIP6, FAR_CLIENT6],
  ] as const)
    t.strictSame(await ask(1, { to, from }), ['ECONNREFUSED'], 'the refusal of a member reaches the client')
})

t.test('weights give each member its share exactly; weight 0 and disabled members get no new flow', async t => {
  await apply([listener(1)], [pool(1, [member(1, { weight: 4 }), member(2, { weight: 6 })])])
  const answers = await ask(20)
  t.equal(sizeOf(answers, 'member-1'), 8)
  t.equal(sizeOf(answers, 'member-2'), 12)

  const drained = await flow('drained')
  const stopped = await flow('stopped')
  const flows = new Map([
    [await drained(), drained],
    [await stopped(), stopped],
  ])
  t.equal(flows.size, 2, 'the two flows have a member each')
  await apply([listener(1)], [pool(1, [member(1, { weight: 0 }), member(2, { disabled: true }), member(3)])])
  t.strictSame(new Set(await ask(6)), new Set(['member-3']))
  t.equal(await flows.get('member-1')!(), 'member-1', 'a draining member keeps its flows')
  t.equal(await flows.get('member-2')!(), 'member-3', 'the flow of a disabled member moves at once')
})

t.test('a flow stays with its member while others come, go and change', async t => {
  await apply([listener(1)], [pool(1, both())])
  const steady = await flow('steady')
  const first = await steady()
  const own = first === 'member-1' ? member(1) : member(2)
  for (const members of [[own, member(3)], [own], [member(4, { weight: 7 }), own, member(3, { weight: 3 })], both()]) {
    await apply([listener(1)], [pool(1, members)])
    t.equal(await steady(), first)
  }
  const left = [member(3)]
  await apply([listener(1)], [pool(1, left)])
  t.equal(await steady(), 'member-3', 'the flow of a member that left moves at once')
  await apply([listener(1, { poolId: poolId(2) })], [pool(2, [member(4)])])
  t.equal(await steady(), 'member-4', 'a flow moves with the listener to another pool')
  await apply([listener(1, { poolId: null })], [])
  t.equal(await steady(), 'ECONNREFUSED', 'a listener without a pool refuses')
  await apply([listener(2, { port: 54 })], [pool(1, both())])
  t.equal(await steady(), 'ECONNREFUSED', 'a listener that is deleted refuses')
  await apply([listener(1), listener(2, { port: 54 })], [pool(1, both())])
  t.match(await steady(), /^member-[12]$/, 'it was refused so far, and is balanced as soon as there is a listener')
})

t.test('backup members serve while no other does, and none at all is refused', async t => {
  const backups = [member(3, { backup: true }), member(4, { backup: true })]
  await apply([listener(1)], [pool(1, [member(1), ...backups])])
  t.strictSame(new Set(await ask(4)), new Set(['member-1']))
  await apply([listener(1)], [pool(1, [member(1, { disabled: true }), ...backups])])
  t.strictSame((await ask(4)).sort(), ['member-3', 'member-3', 'member-4', 'member-4'])
  await apply([listener(1)], [pool(1, [member(1, { disabled: true }), member(101)])])
  t.strictSame(await ask(1), ['ECONNREFUSED'])
  t.strictSame(await ask(1, { to: VIP6 }), ['member-101'], 'the other family has a member')
})

t.test('SOURCE_IP keeps a client’s member, and a lost member moves its own clients only', async t => {
  const members = [1, 2, 3, 101, 102, 103].map(number => member(number))
  for (const to of [VIP, VIP6]) {
    const from = (host: number) => (to === VIP ? `10.66.0.${host}` : `fd66::${host}`)
    await apply([listener(1)], [pool(1, members, { algorithm: 'SOURCE_IP' })])
    const places = new Map<number, string>()
    for (const host of [2, 3, 4, 130]) {
      const answers = new Set(await ask(3, { to, from: from(host) }))
      t.equal(answers.size, 1)
      places.set(host, [...answers][0]!)
    }
    const [lost] = new Set(places.values())
    const without = members.filter(({ id }) => !id.endsWith(lost!.slice('member-'.length).padStart(12, '0')))
    await apply(
      [listener(1)],
      [
        pool(
          1,
          members.map(one => (without.includes(one) ? one : { ...one, disabled: false, backup: true })),
          { algorithm: 'SOURCE_IP' },
        ),
      ],
    )
    for (const [host, name] of places) {
      const [now] = await ask(1, { to, from: from(host) })
      if (name === lost) t.not(now, lost)
      else t.equal(now, name)
    }
  }
})

t.test('SOURCE_IP_PORT spreads the flows of one client', async t => {
  await apply([listener(1)], [pool(1, [...both(), member(3)], { algorithm: 'SOURCE_IP_PORT' })])
  t.equal(new Set(await ask(40)).size, 3)
  const steady = await flow('four-tuple')
  const name = await steady()
  t.strictSame(new Set(await Promise.all([steady(), steady()])), new Set([name]))
})

t.test('session persistence keeps clients by so many bits of their address, while they are not silent', async t => {
  const persistence = { seconds: 2, bits: { ipv4: 25, ipv6: 121 } }
  const members = [1, 2, 101, 102].map(number => member(number))
  await apply([listener(1)], [pool(1, members, { persistence })])
  for (const [to, near, far] of [
    [VIP, ['10.66.0.2', '10.66.0.3', '10.66.0.4'], '10.66.0.130'],
    [VIP6, ['fd66::2', 'fd66::3', 'fd66::4'], 'fd66::130'],
  ] as const) {
    const answers = new Set<string>()
    for (const from of near) for (const name of await ask(2, { to, from })) answers.add(name)
    t.equal(answers.size, 1, `${near.join(', ')} are the same client`)
    t.not((await ask(1, { to, from: far }))[0], [...answers][0], 'another client comes to the next member')
  }

  const known = (await ask(1))[0]!
  const others = members.filter(({ id }) => !id.endsWith(known.slice('member-'.length).padStart(12, '0')))
  const own = members.find(one => !others.includes(one))!
  await apply([listener(1)], [pool(1, [...others, { ...own, weight: 0 }], { persistence })])
  t.strictSame(new Set(await ask(3)), new Set([known]), 'a known client still arrives at a draining member')
  await apply([listener(1)], [pool(1, [...others, { ...own, disabled: true }], { persistence })])
  const moved = await ask(3)
  t.equal(new Set(moved).size, 1, 'a client of a member that is gone moves, and stays there')
  t.not(moved[0], known)
  await apply([listener(1)], [pool(1, members, { persistence })])
  t.strictSame(new Set(await ask(3)), new Set([moved[0]]), 'it stays when its former member is back')
  await until(() => (world.nft('list', 'table', 'inet', 'krater_datagrams').includes('expires') ? null : true))
  t.equal(new Set(await ask(2)).size, 1)
  await until(() => (world.nft('list', 'table', 'inet', 'krater_datagrams').includes('expires') ? null : true))
  await apply([listener(1)], [pool(1, members, { persistence: { ...persistence, bits: { ipv4: 0, ipv6: 0 } } })])
  const all = [...(await ask(2)), ...(await ask(2, { from: '10.66.0.130' }))]
  t.equal(new Set(all).size, 1, 'with no bits, all clients are one')
})

t.test('a listener has as many flows as its limit allows, and a flow that ends makes room', async t => {
  const at = { port: 60 }
  const limited = (limit: number | null, rest = {}) => listener(3, { port: 60, limit, ...rest })
  await apply([limited(2, { idleSeconds: 20 })], [pool(1, both())])
  const [one, other, third] = [await flow('one', at), await flow('other', at), await flow('third', at)]
  t.match([await one(), await other()], [/^member/, /^member/])
  t.equal(await third(), 'silence', 'the third flow is not admitted')
  t.match([await one(), await other()], [/^member/, /^member/], 'those under way go on')
  await apply([limited(3, { idleSeconds: 20 })], [pool(1, both())])
  t.match([await one(), await other(), await third()], [/^member/, /^member/, /^member/], 'a higher limit admits it')
  await apply([limited(null)], [pool(1, both())])
  await apply([limited(3)], [pool(1, both())])
  t.equal(await (await flow('fourth', at))(), 'silence', 'those under way count for a new limit')
  await apply([limited(1)], [pool(1, [member(3)])])
  t.equal(await one(), 'member-3', 'flows of members that left no longer count')
  await apply([limited(null)], [pool(1, [member(3)])])
  t.strictSame(new Set(await ask(4, at)), new Set(['member-3']))
})

t.test('only allowed clients come', async t => {
  const allowed = ['10.66.0.0/30', '10.66.0.2/32', 'fd66::2/127']
  await apply([listener(1, { allowed })], [pool(1, [member(1), member(101)])])
  t.strictSame(await ask(1, { from: '10.66.0.3' }), ['member-1'])
  t.strictSame(await ask(1, { from: '10.66.0.4' }), ['silence'])
  t.strictSame(await ask(1, { to: VIP6, from: 'fd66::3' }), ['member-101'])
  t.strictSame(await ask(1, { to: VIP6, from: 'fd66::4' }), ['silence'])
  await apply([listener(1, { allowed: ['10.66.0.0/30'] })], [pool(1, [member(1), member(101)])])
  t.strictSame(await ask(1, { from: '10.66.0.2' }), ['member-1'], 'what a larger range allows stays allowed')
  t.strictSame(await ask(1, { to: VIP6, from: 'fd66::2' }), ['silence'], 'no address of the other family is allowed')
  await apply([listener(1)], [pool(1, [member(1), member(101)])])
  t.strictSame(await ask(1, { from: '10.66.0.4' }), ['member-1'])
})

t.test(
  'SCTP: an association goes through a VIP of either family, counts for the limit, and makes room when it ends',
  async t => {
    const members = await startSctpMembers()
    t.teardown(members.end)
    // The addresses from which the kernel answers by default.
    const places = [member(1, { port: 9000 }), member(103, { port: 9000 })]
    const sctp = listener(4, { protocol: 'sctp', port: 3868, limit: 1, poolId: poolId(4) })
    await apply([listener(1, { port: 3868 }), sctp], [pool(1, [member(2)]), pool(4, places)])
    for (const [to, own] of [
      [VIP, 5001],
      [VIP6, 5002],
    ] as const) {
      const ports = { own, other: 3868 }
      const accepted = await until(() => {
        const answer = initiate(to, initPacket(ports, 77))
        return answer === 'silence' ? null : readInitAnswer(Buffer.from(answer, 'hex'), ports, 77)
      })
      t.match(accepted, { peerTag: 0x01020304 }, `${to} answers from the listener’s port`)
      const another = initPacket({ own: own + 10, other: 3868 }, 78)
      t.equal(initiate(to, another), 'silence', 'a second association is not admitted')
      t.equal(initiate(to, abortPacket(ports, 0x01020304)), 'silence')
    }
    t.strictSame(await ask(1, { port: 3868 }), ['member-2'], 'UDP has the same port number')
    t.match(amphora.inside('sysctl', 'net.netfilter.nf_conntrack_sctp_timeout_established'), / = 50$/m)
  },
)

t.test('nothing is left when there are no such listeners any more', async t => {
  await apply([], [], { datagrams: null })
  t.notMatch(world.nft('list', 'tables'), 'krater_datagrams')
  for (const key of ['ipv4.conf.vip0', 'ipv6.conf.all'])
    t.match(amphora.inside('sysctl', `net.${key}.forwarding`), / = 0$/m)
  t.notMatch(amphora.inside('ip', 'rule'), 'fwmark')
  t.strictSame(await ask(1), ['ECONNREFUSED'])
})
