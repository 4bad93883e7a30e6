import fc from 'fast-check'
import t from 'tap'
import { allowedFlows, flowsToDelete } from '../../../amphora-agent/datagrams/flows.js'
import type { MemberStates } from '../../../amphora-agent/datagrams/member-states.js'
import { allot, memberKey, noNumbers, serviceKey, serviceMark } from '../../../amphora-agent/datagrams/numbers.js'
import { planRuleset } from '../../../amphora-agent/datagrams/plan-ruleset.js'
import { EMPTY, readListing, transaction, withoutLearned } from '../../../amphora-agent/datagrams/ruleset.js'
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
  const disabled = {
    ...desired,
    pools: [
      pool(
        1,
        [1, 2].map(number => member(number, { disabled: true })),
      ),
    ],
  }
  t.strictSame(
    flowsToDelete([one + 1, one + 2], allowedFlows(disabled, numbers, ALL_UP)),
    [{ mark: one, mask: 0xfff00000 }],
    'all at once where nobody is left',
  )
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
