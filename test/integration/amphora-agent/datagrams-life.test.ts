import t from 'tap'
import type { Report } from '../../../amphora-agent/protocol/heartbeat.js'
import { createGates } from '../../support/faults/program-gates.js'
import { until } from '../../support/worlds/amphora.js'
import { createDatagramWorld, VIP, VIP6 } from '../../support/worlds/datagram-amphora.js'
import {
  datagramListener as listener,
  datagramMember as member,
  datagramPool as pool,
  poolId,
} from '../../support/worlds/datagrams-desired.js'

const world = await createDatagramWorld()
t.teardown(world.end)
const { apply, ask, flow, amphora } = world

const both = () => [member(1), member(2)]
const reports = () => amphora.traffic.reports()

/** Waits for a report of the first listener that fits. */
function reported(fits: (listener: Report['listeners'][number]) => boolean): Promise<Report> {
  const known = reports().length
  return until(
    () =>
      reports()
        .slice(known)
        .find(({ listeners }) => listeners.some(one => one.index === 0 && fits(one))) ?? null,
  )
}
const repairs = () => reports().flatMap(report => report.repairs)
const newRepair = (from: number, text: string) =>
  until(() => (repairs().some(repair => repair.atMs >= from && repair.text.includes(text)) ? true : null))

t.test('reports have the state and the counters of listeners, pools and members', async t => {
  const members = [member(1), member(2, { weight: 0 }), member(3, { disabled: true })]
  await apply([listener(1, { limit: 5 })], [pool(1, members)])
  await ask(4)
  const report = await reported(({ counters }) => counters.totalConnections === 4)
  t.match(report, {
    listeners: [{ state: 'OPEN', counters: { activeConnections: 4, totalConnections: 4, requestErrors: 0 } }],
    pools: [{ state: 'UP', members: ['NO_CHECK', 'DRAIN', 'MAINT'], counters: { totalConnections: 4 } }],
  })
  const [{ counters }] = report.listeners as [Report['listeners'][number]]
  t.equal(counters.bytesIn, 4 * 29, 'four packets with one byte each, with their headers')
  t.equal(counters.bytesOut, 4 * (28 + 'member-1 10.66.1.11'.length))
  await ask(2)
  t.match(await reported(({ state }) => state === 'FULL'), {
    listeners: [{ counters: { activeConnections: 5, totalConnections: 5, requestErrors: 1 } }],
  })
  await apply(
    [listener(1)],
    [
      pool(
        1,
        members.map(one => ({ ...one, disabled: true })),
      ),
    ],
  )
  await ask(1)
  t.match(await reported(({ counters: { requestErrors } }) => requestErrors === 2), { pools: [{ state: 'DOWN' }] })
})

t.test('counters never decrease: whatever changes, whoever dies, whatever is deleted', async t => {
  const total = async () => {
    const answered = (await ask(1))[0]
    t.match(answered, /^member/)
    expected += 1
    const { epoch, listeners } = await reported(({ counters }) => counters.totalConnections >= expected)
    return { epoch, total: listeners.find(({ index }) => index === 0)!.counters.totalConnections }
  }
  let expected = 0
  await apply([listener(1)], [pool(1, both())])
  await ask(1)
  expected = (await reported(({ counters }) => counters.totalConnections > 5)).listeners[0]!.counters.totalConnections
  const { epoch } = await total()
  const same = async (title: string) => t.strictSame(await total(), { epoch, total: expected }, title)
  await apply([listener(1, { limit: 100, idleSeconds: 20 })], [pool(1, both(), { algorithm: 'SOURCE_IP' })])
  await same('other options')
  await apply([listener(1, { poolId: poolId(2) })], [pool(2, [member(3)])])
  await same('another pool')
  await amphora.killAgent()
  await world.reconnect()
  await same('another agent')
  await apply([], [])
  await apply([listener(1)], [pool(1, both())])
  await same('the listener was gone')
  world.nft('delete', 'table', 'inet', 'krater_datagrams')
  await until(async () => ((await ask(1))[0]!.startsWith('member') ? true : null))
  expected += 1
  await same('the table was deleted')
})

t.test('what somebody changes in the kernel is repaired and reported', async t => {
  await apply([listener(1, { limit: 100 })], [pool(1, both())])
  const steady = await flow('steady')
  const name = await steady()
  const [table] = [['inet', 'krater_datagrams']] as const
  const schedule = `schedule4_${poolId(1).replaceAll('-', '')}`
  for (const [what, ...command] of [
    ['a chain', 'flush', 'chain', ...table!, 'prerouting'],
    ['an element', 'delete', 'element', ...table!, schedule, '{ 0 }'],
    ['a rule', 'add', 'rule', ...table!, 'forward', 'meta', 'l4proto', '17', 'drop'],
    ['a map', 'flush', 'map', ...table!, 'listeners4'],
  ] as const) {
    const from = Date.now()
    world.nft(...command)
    await newRepair(from, 'UDP and SCTP')
    t.strictSame(new Set(await ask(2)), new Set(['member-1', 'member-2']), what)
    t.equal(await steady(), name)
  }
  const from = Date.now()
  amphora.inside('sysctl', '-qw', 'net.ipv4.conf.vip0.forwarding=0', 'net.ipv6.conf.all.forwarding=0')
  amphora.inside('ip', 'rule', 'del', 'priority', '100', 'fwmark', '0x6b760000')
  await newRepair(from, 'fwmark')
  await newRepair(from, 'UDP and SCTP')
  t.match(amphora.inside('sysctl', 'net.ipv6.conf.all.forwarding'), / = 1$/m)
  t.match(await steady(), name)
  t.strictSame(
    repairs()
      .filter(({ atMs, text }) => atMs >= from && text.includes('UDP and SCTP'))
      .map(({ atMs }) => atMs)
      .filter((at, i, all) => all.indexOf(at) === i).length,
    1,
    'its own changes are no repairs',
  )
})

t.test(
  'an agent that is killed at any step of a change leaves flows as they are, and its successor goes on',
  async t => {
    await apply([listener(1)], [pool(1, both())])
    const gates = createGates(amphora)
    t.teardown(gates.remove)
    const kept = await flow('kept')
    const name = await kept()
    const own = name === 'member-1' ? member(1) : member(2)
    const steps = ['before nft -f', 'after nft -f', 'before conntrack -D', 'after conntrack -D'] as const
    for (const [round, step] of steps.entries()) {
      const [leaving, coming] = round % 2 === 0 ? ([4, 3] as const) : ([3, 4] as const)
      const port = 54 + (round % 2)
      const applyWith = (other: number, weight: number) =>
        apply([listener(1), listener(2, { port })], [pool(1, [own, member(other, { weight })])])
      await applyWith(leaving, 2)
      const flows = await Promise.all([1, 2, 3].map(number => flow(`${step} ${number}`)))
      const answers = async () => [await flows[0]!(), await flows[1]!(), await flows[2]!()]
      t.ok((await answers()).includes(`member-${leaving}`))
      const isThere = gates.stopAt(step)
      const change = applyWith(coming, 1).catch(() => null)
      await isThere()
      await amphora.killAgent()
      await change
      await world.reconnect()
      gates.letGo()
      t.equal(await kept(), name, step)
      await applyWith(coming, 1)
      t.equal(await kept(), name)
      t.notOk((await answers()).includes(`member-${leaving}`), 'flows of the member that left have moved')
      t.strictSame(new Set(await ask(6, { port })), new Set([name, `member-${coming}`]))
    }
    amphora.inside('rm', '/run/krater/datagram-numbers.json')
    await amphora.killAgent()
    await world.reconnect()
    t.match(await kept(), /^member/, 'a flow whose numbers are lost begins anew')
    await apply([listener(1)], [pool(1, [member(3)])])
    t.equal(await kept(), 'member-3')
  },
)

t.test('LEAST_CONNECTIONS gives new flows to the members with the fewest under way for their weight', async t => {
  await apply([listener(1)], [pool(1, [member(1)], { algorithm: 'LEAST_CONNECTIONS' })])
  await ask(60)
  await apply(
    [listener(1)],
    [pool(1, [member(1), member(2), member(3, { weight: 2 })], { algorithm: 'LEAST_CONNECTIONS' })],
  )
  const marks = () => world.nft('list', 'map', 'inet', 'krater_datagrams', `schedule4_${poolId(1).replaceAll('-', '')}`)
  await until(() => (new Set(marks().match(/ : 0x[0-9a-f]+/g)).size === 2 ? true : null))
  const answers = await ask(60)
  t.ok(
    answers.filter(answer => answer === 'member-1').length < 5,
    'it has its share already, unless many more are expected',
  )
  const third = answers.filter(answer => answer === 'member-3').length
  t.ok(third > 30 && third < 50, `the heavier member has two thirds: ${third} of 60`)
})

t.test('a member that fails its probes gets no flows, and loses those it has, until it answers again', async t => {
  const place = { address: member(2).address, port: 5300 }
  const exchange = { payload: '3f', answer: Buffer.from('member').toString('hex') }
  const monitor = { type: 'UDP-CONNECT', delay: 1, timeout: 1, rise: 3, fall: 2, http: null, exchange } as const
  const monitored = pool(1, [member(1), member(2)], { monitor })
  await apply([listener(1)], [monitored], { downMembers: [member(2).id] })
  const asked = async () => (await ask(4)).sort().join()
  const one = 'member-1,member-1,member-1,member-1'
  const untilAsked = (expected: string) => until(async () => ((await asked()) === expected ? true : null))
  t.equal(await asked(), one, 'known to be down')
  await untilAsked('member-1,member-1,member-2,member-2')
  const flows = [await flow('one'), await flow('other')]
  const members = async () => [await flows[0]!(), await flows[1]!()]
  t.same((await members()).sort(), ['member-1', 'member-2'])
  await world.services.ask('endDatagramMember', place)
  await untilAsked(one)
  t.same(await members(), ['member-1', 'member-1'])
  await amphora.killAgent()
  await world.reconnect()
  t.equal(await asked(), one, 'known to the next agent')
  t.notMatch(amphora.readFile('/run/krater/log/agent.log'), /cannot resume/)
  await world.services.ask('datagramMember', { name: 'member-2', ...place })
  await untilAsked('member-1,member-1,member-2,member-2')
})

t.test('a flow that began before its listener reaches a member once the listener is there', async t => {
  await apply([listener(1)], [pool(1, [member(1), member(101)])])
  const early = await Promise.all([VIP, VIP6].map(to => flow(`early ${to}`, { to, port: 54 })))
  const answers = () => Promise.all(early.map(send => send()))
  t.same(await answers(), ['ECONNREFUSED', 'ECONNREFUSED'])
  await apply([listener(1), listener(2, { port: 54 })], [pool(1, [member(1), member(101)])])
  t.same(await answers(), ['member-1', 'member-101'])
})

t.test('an agent that cannot read the table leaves it as it is, and later goes on', async t => {
  await apply([listener(1)], [pool(1, both())])
  const rules = () => world.nft('-s', 'list', 'chain', 'inet', 'krater_datagrams', 'forward')
  const before = rules()
  const gates = createGates(amphora)
  t.teardown(gates.remove)
  const mend = gates.fail('nft list')
  await amphora.killAgent()
  await until(() => (amphora.readFile('/run/krater/log/agent.log').includes('cannot resume') ? true : null))
  t.strictSame(new Set(await ask(2)), new Set(['member-1', 'member-2']))
  mend()
  await world.reconnect()
  await apply([listener(1)], [pool(1, [member(3)])])
  t.strictSame(new Set(await ask(2)), new Set(['member-3']))
  t.equal(rules(), before, 'no rule is there twice')
})
