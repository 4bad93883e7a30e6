import fc from 'fast-check'
import t from 'tap'
import { allowedFlows, flowsToDelete } from '../../../amphora-agent/datagrams/flows.js'
import type { MemberStates } from '../../../amphora-agent/datagrams/member-states.js'
import { allot, memberKey, noNumbers, serviceKey, serviceMark } from '../../../amphora-agent/datagrams/numbers.js'
import { planRuleset } from '../../../amphora-agent/datagrams/plan-ruleset.js'
import { EMPTY, readListing, transaction, withoutLearned } from '../../../amphora-agent/datagrams/ruleset.js'
import { maglevTable, tableSize } from '../../../amphora-agent/datagrams/schedules/maglev.js'
import { leastLoadedTurns, weightedTurns } from '../../../amphora-agent/datagrams/schedules/turns.js'
import { servingMembers } from '../../../amphora-agent/datagrams/serving.js'
import { datagramStates } from '../../../amphora-agent/datagrams/states.js'
import { type Datagrams, datagramsSchema } from '../../../amphora-agent/protocol/datagrams.js'
import {
  datagramListener as listener,
  datagramMember as member,
  memberId,
  datagramPool as pool,
  poolId,
} from '../../support/worlds/datagrams-desired.js'

const ALL_UP: MemberStates = { isUp: () => null, failedCheck: () => null }
const down = (...numbers: number[]): MemberStates => ({
  isUp: (_, id) => !numbers.map(memberId).includes(id),
  failedCheck: () => null,
})
const MONITOR = { type: 'UDP-CONNECT', delay: 5, timeout: 4, rise: 1, fall: 1, http: null, exchange: null } as const

/** How often each value occurs. */
function tally<T>(values: readonly T[]): Map<T, number> {
  const counts = new Map<T, number>()
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  return counts
}

const weights = fc.array(fc.integer({ min: 1, max: 256 }), { minLength: 1, maxLength: 12 })

t.test('turns: every member has exactly its share of a cycle, and never waits long', t => {
  fc.assert(
    fc.property(weights, list => {
      const total = list.reduce((sum, weight) => sum + weight, 0)
      const cycle = weightedTurns(
        list.map((weight, i) => ({ member: i + 1, weight })),
        [],
      )
      const counts = tally(cycle)
      for (const [i, weight] of list.entries()) {
        if (Math.abs(counts.get(i + 1)! * total - weight * cycle.length) > 0) throw new Error(`${i + 1} of ${list}`)
        const first = cycle.indexOf(i + 1)
        if (first > cycle.length / counts.get(i + 1)!) throw new Error(`${i + 1} waits for ${first} of ${cycle.length}`)
      }
    }),
  )
  t.strictSame(
    weightedTurns(
      [
        { member: 7, weight: 2 },
        { member: 9, weight: 4 },
      ],
      [],
    ),
    [9, 7, 9],
  )
  const many = Array.from({ length: 1000 }, (_, i) => ({ member: i + 1, weight: (i % 256) + 1 }))
  t.ok(weightedTurns(many, []).length < 6000, 'large weights are scaled')
  t.equal(tally(weightedTurns(many, [])).size, 1000)
  t.end()
})

t.test('turns: with equal weights, a change of one member moves no other', t => {
  const shares = Array.from({ length: 1000 }, (_, i) => ({ member: i + 1, weight: 1 }))
  const before = weightedTurns(shares, [])
  const without = weightedTurns(
    shares.filter(({ member }) => member !== 400),
    before,
  )
  t.equal(without.filter((one, place) => before[place] !== one).length, 1, 'the last one fills its place')
  t.strictSame(new Set(without), new Set(before.filter(one => one !== 400)))
  const again = weightedTurns(shares, without)
  t.equal(again.filter((one, place) => without[place] !== one).length, 1)
  t.end()
})

t.test('least loaded: the next flows level the loads, in the proportion of the weights', t => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ weight: fc.integer({ min: 1, max: 8 }), flows: fc.nat(50) }), {
        minLength: 2,
        maxLength: 8,
      }),
      list => {
        const shares = list.map(({ weight }, i) => ({ member: i + 1, weight }))
        const flows = new Map(list.map((one, i) => [i + 1, one.flows]))
        const places = leastLoadedTurns(shares, flows, 0, [])
        const given = tally(places)
        const loads = shares.map(({ member, weight }) => ({
          weight,
          load: flows.get(member)! + (given.get(member) ?? 0),
          given: given.get(member) ?? 0,
        }))
        // Nobody who got a flow would have been better spared for somebody else.
        for (const one of loads) {
          if (one.given === 0) continue
          for (const other of loads) {
            if (one.load / one.weight > (other.load + 1) / other.weight + 1e-9) throw new Error(JSON.stringify(loads))
          }
        }
      },
    ),
  )
  const steady = leastLoadedTurns(
    [1, 2].map(one => ({ member: one, weight: 1 })),
    new Map([
      [1, 9],
      [2, 9],
    ]),
    0,
    [],
  )
  t.strictSame(
    leastLoadedTurns(
      [1, 2].map(one => ({ member: one, weight: 1 })),
      new Map([
        [1, 9],
        [2, 9],
      ]),
      0,
      steady,
    ),
    steady,
  )
  const busy = leastLoadedTurns(
    [1, 2].map(one => ({ member: one, weight: 1 })),
    new Map([
      [1, 1000],
      [2, 0],
    ]),
    64_000,
    [],
  )
  t.match(
    tally(busy),
    new Map([
      [1, 32],
      [2, 32],
    ]),
    'many flows to come outweigh a small difference',
  )
  t.end()
})

const idList = fc.uniqueArray(fc.uuid(), { minLength: 2, maxLength: 30 })

t.test('Maglev: shares are even, and a member that goes down or back moves its own places only', t => {
  fc.assert(
    fc.property(idList, fc.nat(), (ids, nth) => {
      const members = ids.map(id => ({ id, weight: 1 }))
      const table = maglevTable(members, new Set(ids))
      const mean = table.length / ids.length
      for (const [, count] of tally(table)) if (Math.abs(count - mean) > 1) throw new Error(`${count} of ${mean}`)
      const lost = ids[nth % ids.length]!
      const rest = new Set(ids.filter(id => id !== lost))
      const without = maglevTable(members, rest)
      for (const [place, id] of table.entries()) {
        if (id !== lost && without[place] !== id) throw new Error('another client moved')
        if (without[place] === lost) throw new Error('a place still leads to the lost member')
      }
      const more = ids.find(id => id !== lost)!
      if (rest.size > 1) {
        const both = maglevTable(members, new Set([...rest].filter(id => id !== more)))
        for (const [place, id] of without.entries())
          if (id !== more && both[place] !== id) throw new Error('a substitute moved')
      }
    }),
    { numRuns: 50 },
  )
  const shuffled = ['c', 'a', 'b'].map(id => ({ id, weight: 1 }))
  t.strictSame(
    maglevTable(shuffled, new Set('abc')),
    maglevTable([...shuffled].reverse(), new Set('abc')),
    'both amphorae of a pair have the same, whatever the order',
  )
  const uneven = tally(
    maglevTable(
      [
        { id: 'a', weight: 1 },
        { id: 'b', weight: 4 },
      ],
      new Set('ab'),
    ),
  )
  t.ok(Math.abs(uneven.get('b')! / uneven.get('a')! - 4) < 0.1)
  const some = Array.from({ length: 20 }, (_, i) => ({ id: memberId(i), weight: 1 }))
  const all = new Set(some.map(({ id }) => id))
  const [before, after] = [maglevTable(some, all), maglevTable(some.slice(1), all)]
  const moved = before.filter((id, place) => id !== memberId(0) && after[place] !== id).length
  t.ok(moved / before.length < 0.1, `a member that is deleted moves ${moved} of ${before.length} places of others`)
  t.strictSame([1, 5, 6, 1000].map(tableSize), [251, 251, 1021, 16381])
  t.end()
})

t.test('backup members serve while no other does', t => {
  const one = pool(
    1,
    [member(1), member(2, { weight: 0 }), member(3, { backup: true }), member(4, { backup: true, disabled: true })],
    {
      monitor: MONITOR,
    },
  )
  const ids = (states: MemberStates, family: 4 | 6 = 4) =>
    servingMembers(one, family, states).serving.map(({ id }) => id)
  t.strictSame(ids(ALL_UP), [memberId(1)])
  t.strictSame(ids(down(1)), [memberId(3)])
  t.strictSame(ids(down(1, 3)), [])
  t.strictSame(ids(ALL_UP, 6), [])
  t.strictSame(
    servingMembers({ ...one, monitor: null }, 4, down(1)).serving.map(({ id }) => id),
    [memberId(1)],
    'nothing is known without a monitor',
  )
  const report = datagramStates(
    { vips: [], listeners: [listener(1, { limit: 3 })], pools: [one] },
    down(1),
    true,
    new Map([[listener(1).id, 3]]),
  )
  t.strictSame(
    [...report.pools.get(poolId(1))!.members.values()].map(({ state }) => state),
    ['DOWN', 'DRAIN', 'UP', 'MAINT'],
  )
  t.equal(report.pools.get(poolId(1))!.state, 'UP')
  t.equal(report.listeners.get(listener(1).id), 'FULL')
  t.end()
})

t.test('numbers stay as long as what they name, and come back late', t => {
  const desired = (...members: number[]): Datagrams => ({
    vips: [],
    listeners: [listener(1)],
    pools: [
      pool(
        1,
        members.map(number => member(number)),
      ),
    ],
  })
  const first = allot(
    noNumbers(() => 0),
    desired(1, 2, 3),
  )
  const second = allot(first, desired(1, 3, 4))
  const given = (numbers: typeof first, number: number) => numbers.members.given[memberKey(poolId(1), member(number))]
  t.strictSame(
    [1, 2, 3].map(number => given(first, number)),
    [1, 2, 3],
  )
  t.strictSame(
    [1, 2, 3, 4].map(number => given(second, number)),
    [1, undefined, 3, 4],
  )
  const moved = { ...desired(), pools: [pool(1, [member(1, { address: '10.66.1.99' })])] }
  t.not(
    Object.values(allot(first, moved).members.given)[0],
    given(first, 1),
    'a member with another address is another one',
  )
  const last = allot(
    { ...first, services: { last: 4095, given: {} }, members: { last: 2 ** 20 - 1, given: {} } },
    desired(1),
  )
  t.strictSame(
    [Object.values(last.services.given), Object.values(last.members.given)],
    [[1], [1]],
    'after the last comes the first',
  )
  const tooMany = { ...desired(), listeners: Array.from({ length: 4096 }, (_, i) => listener(i)) }
  t.throws(() => allot(first, tooMany), /more than 4095/)
  t.end()
})

t.test('flows end with their member or their listener, by as few deletions as possible', t => {
  const desired: Datagrams = {
    vips: [],
    listeners: [listener(1), listener(2, { poolId: poolId(2) })],
    pools: [pool(1, [member(1), member(2, { disabled: true })]), pool(2, [member(3)])],
  }
  const numbers = allot(
    noNumbers(() => 0),
    desired,
  )
  const allowed = allowedFlows(desired, numbers, ALL_UP)
  const [one, two] = desired.listeners.map(each => serviceMark(numbers.services.given[serviceKey(each)]!)) as [
    number,
    number,
  ]
  t.strictSame(flowsToDelete([one + 1, two + 3], allowed), [])
  t.strictSame(flowsToDelete([one + 2, one + 1, 0x0ff00005, 0x0ff00006, one + 3], allowed), [
    { mark: 2, mask: 0x000fffff },
    { mark: 0x0ff00000, mask: 0xfff00000 },
    { mark: one + 3, mask: 0xffffffff },
  ])
  t.end()
})

const INTERFACE = {
  mac: '02:00:00:00:00:01',
  name: 'vip0',
  mtu: 1500,
  addresses: [],
  routes: [],
  vips: [{ address: '10.66.0.100', subnet: '10.66.0.0/24', gateway: null }],
}
const NO_LOADS = { flows: new Map<number, number>(), expected: new Map<string, number>() }

function planned(datagrams: Datagrams, before = EMPTY, states = ALL_UP, numbers = noNumbers(() => 0)) {
  const allotted = allot(numbers, datagrams)
  const ruleset = planRuleset({
    datagrams,
    interfaces: [INTERFACE],
    numbers: allotted,
    states,
    loads: NO_LOADS,
    before,
  })
  return { ruleset, numbers: allotted }
}

t.test('a change of one member among a thousand sends only that', t => {
  for (const algorithm of ['ROUND_ROBIN', 'SOURCE_IP', 'LEAST_CONNECTIONS'] as const) {
    const members = Array.from({ length: 1000 }, (_, i) =>
      member(1, { id: memberId(i), address: `10.9.${i >> 8}.${i & 255}` }),
    )
    const persistence = { seconds: 60, bits: { ipv4: 32, ipv6: 128 } }
    const desired = {
      vips: ['10.66.0.100'],
      listeners: [listener(1)],
      pools: [pool(1, members, { algorithm, persistence, monitor: MONITOR })],
    }
    const { ruleset, numbers } = planned(desired)
    const { ruleset: after } = planned(desired, ruleset, down(500), numbers)
    const text = transaction(ruleset, after)
    t.ok(text.length < 2_500, `${algorithm}: ${text.length} bytes`)
    t.notMatch(text, /table inet krater_datagrams\n.*delete table/s)
    t.equal(transaction(after, after), '')
  }
  t.end()
})

t.test('the text holds nothing but words of its own, whatever passes the protocol', t => {
  const idOf = fc.uuid()
  const address = fc.oneof(fc.ipV4(), fc.ipV6())
  const cidr = fc.oneof(
    fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 })).map(parts => parts.join('/')),
    fc.tuple(fc.ipV6(), fc.integer({ min: 0, max: 128 })).map(parts => parts.join('/')),
  )
  const members = fc.array(
    fc.record({
      id: idOf,
      address,
      port: fc.integer({ min: 1, max: 65535 }),
      weight: fc.integer({ min: 0, max: 256 }),
      backup: fc.boolean(),
      disabled: fc.boolean(),
    }),
    { maxLength: 4 },
  )
  const desired = fc
    .record({
      vips: fc.uniqueArray(address, { minLength: 1, maxLength: 3 }),
      pools: fc.uniqueArray(
        fc.record({
          id: idOf,
          algorithm: fc.constantFrom('ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP', 'SOURCE_IP_PORT'),
          persistence: fc.option(
            fc.record({
              seconds: fc.integer({ min: 1, max: 2 ** 31 }),
              bits: fc.record({ ipv4: fc.integer({ min: 0, max: 32 }), ipv6: fc.integer({ min: 0, max: 128 }) }),
            }),
          ),
          members,
        }),
        { minLength: 1, maxLength: 3, selector: ({ id }) => id },
      ),
      listeners: fc.uniqueArray(
        fc.record({
          id: idOf,
          protocol: fc.constantFrom('udp', 'sctp'),
          port: fc.integer({ min: 1, max: 65535 }),
          limit: fc.option(fc.nat(1_000_000)),
          allowed: fc.option(fc.array(cidr, { maxLength: 4 })),
          idleSeconds: fc.integer({ min: 1, max: 86_400 }),
        }),
        { minLength: 1, maxLength: 4, selector: ({ id }) => id },
      ),
    })
    .map(({ pools, listeners, vips }) =>
      datagramsSchema.parse({
        vips,
        pools: pools.map(one => ({
          ...one,
          monitor: null,
          members: one.members.map(each => ({ ...each, monitor: { address: each.address, port: each.port } })),
        })),
        listeners: listeners.map((one, i) => ({ ...one, poolId: i === 0 ? null : pools[i % pools.length]!.id })),
      }),
    )
  fc.assert(
    fc.property(desired, desired, (one, other) => {
      const first = planned(one)
      const second = planned(other, first.ruleset, ALL_UP, first.numbers)
      for (const text of [transaction(EMPTY, first.ruleset), transaction(first.ruleset, second.ruleset)]) {
        const strange = text
          .split('\n')
          .find(
            line =>
              !/^((add|delete|flush) (table|chain|set|map|counter|ct timeout|rule|element) inet krater_datagrams\b[ \w{}@:;.,/&|!=<>"-]*)?$/.test(
                line,
              ),
          )
        if (strange !== undefined) throw new Error(strange)
      }
    }),
    { numRuns: 60 },
  )
  for (const poison of [`${memberId(1)}\n`, '1; flush ruleset', '$(reboot)', '10.0.0.1 }', 'fe80::1%eth0']) {
    t.throws(() => datagramsSchema.parse({ vips: [poison], listeners: [], pools: [] }), poison)
    t.throws(() => datagramsSchema.parse({ vips: [], listeners: [{ ...listener(1), id: poison }], pools: [] }), poison)
    t.throws(
      () => datagramsSchema.parse({ vips: [], listeners: [listener(1, { allowed: [poison] })], pools: [] }),
      poison,
    )
    t.throws(
      () => datagramsSchema.parse({ vips: [], listeners: [], pools: [pool(1, [member(1, { address: poison })])] }),
      poison,
    )
  }
  t.end()
})

t.test('what nft lists says what there is, and what was learned is no difference', t => {
  const text = `table inet krater_datagrams {
\tcounter begun_1 {
\t}

\tct timeout idle_50 {
\t\tprotocol udp
\t}

\tmap clients4_32_a {
\t\ttype ipv4_addr : mark
\t\tsize 65536
\t\tflags dynamic,timeout
\t\telements = { 10.0.0.1 : 0x00000001 }
\t}

\tset usable_a {
\t\ttype mark
\t\telements = { 0x00000001,
\t\t\t     0x00000002 }
\t}

\tchain prerouting {
\t\ttype nat hook prerouting priority dstnat; policy accept;
\t\tct mark { 0x00000001, 0x00000002 } accept
\t}
}
`
  const found = readListing(text)
  t.strictSame(
    [...found.objects.keys(), ...found.sets.keys(), ...found.chains.keys()],
    ['begun_1', 'idle_50', 'clients4_32_a', 'usable_a', 'prerouting'],
  )
  t.strictSame(found.sets.get('clients4_32_a'), {
    kind: 'map',
    declaration: 'type ipv4_addr : mark; size 65536; flags dynamic,timeout',
    elements: 'dynamic',
  })
  t.equal(withoutLearned(text), withoutLearned(text.replace('10.0.0.1 : 0x00000001', '10.0.0.2 : 0x00000002')))
  t.not(withoutLearned(text), withoutLearned(text.replace('dstnat', 'filter')))
  t.not(withoutLearned(text), withoutLearned(text.replace('0x00000002 }\n', '0x00000003 }\n')))
  t.strictSame(readListing(''), EMPTY)
  t.end()
})
