import fc from 'fast-check'
import t from 'tap'
import type { MemberState, Report } from '../../../amphora-agent/protocol/heartbeat.js'
import { assess, type Stored } from '../../../controller/health-manager/assess.js'
import { type AmphoraHealth, impairmentOf, worseOf } from '../../../controller/health-manager/impairment.js'
import { addReport, readPicture } from '../../../controller/health-manager/picture.js'
import { judge, type ReplayWindow } from '../../../controller/health-manager/replay-window.js'

const NOW = 1_800_000_000_000
const envelope = {
  keyId: 1,
  amphoraId: '5e1f1ad0-0000-4000-8000-000000000001',
  bootId: 'aaaaaaaaaaaaaaaa',
  seq: 1,
  sentMs: NOW,
  generation: 1,
  needsApply: false,
  vrrpMaster: false,
}

t.test('the replay window accepts each datagram once, across reboots and clock changes', t => {
  const accept = (window: ReplayWindow | undefined, fields: Partial<typeof envelope>, now = NOW) =>
    judge(window, { ...envelope, ...fields }, now)
  const windowAfter = (...seqs: number[]) =>
    seqs.reduce<ReplayWindow | undefined>((window, seq) => {
      const verdict = accept(window, { seq })
      return verdict.accepted ? verdict.window : window
    }, undefined)

  t.match(accept(undefined, {}), { accepted: true }, 'the first datagram of an unknown amphora')
  t.match(accept(undefined, { sentMs: NOW - 91_000 }), { reason: 'clock' }, 'a first datagram from the past')
  t.match(accept(undefined, { sentMs: NOW + 91_000 }), { reason: 'clock' }, 'a first datagram from the future')
  t.match(accept(windowAfter(1), { seq: 1 }), { reason: 'replayed' }, 'the same number again')
  t.match(accept(windowAfter(1, 5), { seq: 3 }), { accepted: true }, 'an overtaken datagram')
  t.match(accept(windowAfter(1, 5, 3), { seq: 3 }), { reason: 'replayed' }, 'an overtaken datagram replayed')
  t.match(accept(windowAfter(1, 100), { seq: 36 }), { reason: 'too-old' }, 'a number below the window')
  t.match(accept(windowAfter(1, 100), { seq: 37 }), { accepted: true }, 'the lowest number inside the window')
  t.match(accept(windowAfter(1), { seq: 2, sentMs: 0 }), { accepted: true }, 'a known boot is not judged by its clock')
  t.match(
    accept(windowAfter(9), { bootId: 'bbbbbbbbbbbbbbbb', sentMs: NOW + 1 }),
    { accepted: true, window: { highest: 1 } },
    'a new boot starts its own numbers',
  )
  t.match(
    accept(windowAfter(9), { bootId: 'bbbbbbbbbbbbbbbb', sentMs: NOW - 1 }),
    { reason: 'replayed' },
    'a former boot replayed',
  )
  const set = accept(windowAfter(9), { seq: 10, sentMs: NOW + 86_400_000 })
  t.match(
    accept(set.accepted ? set.window : undefined, { bootId: 'bbbbbbbbbbbbbbbb', sentMs: NOW + 1 }),
    { accepted: true },
    'a new boot after a clock a day ahead was corrected',
  )

  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 200 }), { maxLength: 300 }), seqs => {
      const accepted: number[] = []
      let window: ReplayWindow | undefined
      for (const seq of seqs) {
        const verdict = accept(window, { seq })
        if (!verdict.accepted) continue
        window = verdict.window
        accepted.push(seq)
      }
      return new Set(accepted).size === accepted.length
    }),
    { numRuns: 300 },
  )
  t.end()
})

const counters = { bytesIn: 0, bytesOut: 0, activeConnections: 0, totalConnections: 0, requestErrors: 0 }

function createReport(fields: Partial<Report>): Report {
  return {
    ...envelope,
    kind: 'report',
    configHash: '0011223344556677',
    epoch: 'eeeeeeeeeeeeeeee',
    listeners: [],
    pools: [],
    repairs: [],
    fragment: { index: 0, count: 1 },
    ...fields,
  }
}

t.test('fragments of a report add up to the state of every object', t => {
  const table = {
    listeners: ['l1', 'l2'],
    pools: [
      { poolId: 'p', listenerId: 'l1', members: ['m1', 'm2', 'm3'] },
      { poolId: 'p', listenerId: 'l2', members: ['m1', 'm2', 'm3'] },
    ],
  }
  const first = createReport({
    listeners: [
      { index: 0, state: 'OPEN', counters },
      { index: 1, state: 'FULL', counters },
    ],
    pools: [{ index: 0, state: 'UP', counters, firstMember: 0, members: ['UP', 'UP'] }],
  })
  const second = createReport({
    pools: [
      { index: 0, state: 'UP', counters, firstMember: 2, members: ['DRAIN'] },
      { index: 1, state: 'UP', counters, firstMember: 0, members: ['UP', 'DOWN', 'UP'] },
    ],
  })
  const half = addReport(undefined, first)
  t.equal(readPicture(half, table), null, 'nothing is read until every object is reported')
  const whole = readPicture(addReport(half, second), table)
  t.same(
    whole?.listeners,
    new Map([
      ['l1', 'OPEN'],
      ['l2', 'FULL'],
    ]),
  )
  t.same(
    whole?.members,
    new Map([
      ['m1', 'UP'],
      ['m2', 'DOWN'],
      ['m3', 'DRAIN'],
    ]),
    'the worst state of each member counts',
  )
  const other = addReport(half, createReport({ configHash: '8899aabbccddeeff' }))
  t.equal(readPicture(other, table), null, 'another configuration starts over')

  let huge = addReport(undefined, first)
  for (let index = 0; index < 65_536; index += 16) {
    const listeners = [{ index, state: 'OPEN' as const, counters }]
    const pools = [{ index, state: 'UP' as const, counters, firstMember: 65_000, members: ['UP' as const] }]
    huge = addReport(huge, createReport({ listeners, pools }))
  }
  t.ok(huge.listeners.size < 1_000, 'listener numbers beyond any configuration are not kept')
  t.ok(huge.pools.size < 5, 'member numbers beyond any configuration are not kept')
  t.end()
})

function createStored(fields: Partial<Stored> = {}): Stored {
  return {
    id: 'lb',
    operatingStatus: 'ONLINE',
    reportedStatus: 'ONLINE',
    impairment: null,
    adminStateUp: true,
    settled: true,
    listeners: [{ id: 'l', operatingStatus: 'ONLINE', adminStateUp: true }],
    pools: [
      {
        id: 'p',
        operatingStatus: 'ONLINE',
        members: [
          { id: 'm1', operatingStatus: 'ONLINE' },
          { id: 'm2', operatingStatus: 'ONLINE' },
        ],
      },
    ],
    ...fields,
  }
}

const reported = (
  listener: 'OPEN' | 'FULL' | null,
  pool: 'UP' | 'DOWN' | null,
  m1?: MemberState,
  m2?: MemberState,
) => ({
  listeners: new Map(listener === null ? [] : [['l', listener]]),
  pools: new Map(pool === null ? [] : [['p', pool]]),
  members: new Map([
    ...(m1 === undefined ? [] : [['m1', m1] as const]),
    ...(m2 === undefined ? [] : [['m2', m2] as const]),
  ]),
})

t.test('operating statuses follow the truth table', t => {
  const cases = [
    [
      'all well',
      createStored(),
      reported('OPEN', 'UP', 'UP', 'UP'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'a member down',
      createStored(),
      reported('OPEN', 'UP', 'UP', 'DOWN'),
      ['DEGRADED', 'ONLINE', 'DEGRADED', 'ONLINE', 'ERROR'],
    ],
    [
      'all members down',
      createStored(),
      reported('OPEN', 'DOWN', 'DOWN', 'DOWN'),
      ['ERROR', 'ONLINE', 'ERROR', 'ERROR', 'ERROR'],
    ],
    [
      'at the connection limit',
      createStored(),
      reported('FULL', 'UP', 'UP', 'UP'),
      ['DEGRADED', 'DEGRADED', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'draining and maintenance',
      createStored(),
      reported('OPEN', 'UP', 'DRAIN', 'MAINT'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'DRAINING', 'OFFLINE'],
    ],
    [
      'no monitor',
      createStored(),
      reported('OPEN', 'UP', 'NO_CHECK', 'NO_CHECK'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'NO_MONITOR', 'NO_MONITOR'],
    ],
    [
      'not yet checked',
      createStored(),
      reported('OPEN', 'UP', 'UNKNOWN', 'UP'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'an enabled listener is missing',
      createStored(),
      reported(null, 'UP', 'UP', 'UP'),
      ['ERROR', 'ERROR', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'missing while a change is in progress',
      createStored({ settled: false }),
      reported(null, 'UP', 'UP', 'UP'),
      ['ONLINE', 'OFFLINE', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'a disabled listener',
      createStored({ listeners: [{ id: 'l', operatingStatus: 'ONLINE', adminStateUp: false }] }),
      reported(null, null),
      ['ONLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE'],
    ],
    [
      'a disabled load balancer',
      createStored({ adminStateUp: false }),
      reported(null, null),
      ['OFFLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE'],
    ],
  ] as const
  for (const [name, stored, seen, [loadBalancer, listener, pool, m1, m2]] of cases) {
    const assessment = assess(stored, seen)
    t.same(
      [
        assessment.loadBalancer,
        assessment.listeners.get('l'),
        assessment.pools.get('p'),
        assessment.members.get('m1'),
        assessment.members.get('m2'),
      ],
      [loadBalancer, listener, pool, m1, m2],
      name,
    )
  }
  const unmonitored = createStored({
    pools: [{ id: 'p', operatingStatus: 'OFFLINE', members: [{ id: 'm1', operatingStatus: 'NO_MONITOR' }] }],
  })
  t.equal(
    assess(unmonitored, reported('OPEN', null)).members.get('m1'),
    'NO_MONITOR',
    'an unreported member without a monitor keeps its status',
  )
  t.end()
})

t.test('an amphora’s mismatches lower the operating status', async t => {
  const carrier = (fields: Partial<AmphoraHealth> = {}): AmphoraHealth => ({
    heard: true,
    holdsVip: true,
    mismatches: [],
    ...fields,
  })
  const standby = (fields: Partial<AmphoraHealth> = {}) => carrier({ holdsVip: false, ...fields })
  const cases = [
    ['a single amphora is well', 'SINGLE', [carrier()], null],
    ['its VIP is missing', 'SINGLE', [carrier({ mismatches: ['address'] })], 'ERROR'],
    ['its VIP is missing, and it reports that', 'SINGLE', [standby({ mismatches: ['address'] })], 'ERROR'],
    ['its disk is full', 'SINGLE', [carrier({ mismatches: ['disk'] })], 'DEGRADED'],
    ['it is silent and may still serve', 'SINGLE', [carrier({ heard: false, mismatches: ['address'] })], null],
    ['its successor stands by', 'SINGLE', [carrier({ mismatches: ['haproxy'] }), standby()], 'ERROR'],
    ['a pair is well', 'ACTIVE_STANDBY', [carrier(), standby()], null],
    ['the VIP moves', 'ACTIVE_STANDBY', [standby(), standby()], null],
    ['the second is silent', 'ACTIVE_STANDBY', [carrier(), standby({ heard: false })], 'DEGRADED'],
    [
      'the second has no keepalived',
      'ACTIVE_STANDBY',
      [carrier(), standby({ mismatches: ['keepalived'] })],
      'DEGRADED',
    ],
    ['the first has no HAProxy', 'ACTIVE_STANDBY', [carrier({ mismatches: ['haproxy'] }), standby()], 'ERROR'],
    ['the second has taken over', 'ACTIVE_STANDBY', [standby({ mismatches: ['haproxy'] }), carrier()], 'DEGRADED'],
    [
      'neither has keepalived',
      'ACTIVE_STANDBY',
      [standby({ mismatches: ['keepalived'] }), standby({ mismatches: ['keepalived'] })],
      'ERROR',
    ],
    [
      'the first is silent and may still serve',
      'ACTIVE_STANDBY',
      [carrier({ heard: false }), standby({ mismatches: ['disk'] })],
      'DEGRADED',
    ],
    ['both are silent', 'ACTIVE_STANDBY', [carrier({ heard: false }), standby({ heard: false })], null],
  ] as const
  for (const [name, topology, carriers, expected] of cases) {
    t.equal(impairmentOf(topology, carriers, null), expected, name)
  }
  const silent = carrier({ heard: false, mismatches: ['haproxy'] })
  const silences = [
    ['the one that did not serve', 'SINGLE', [silent], 'ERROR', 'ERROR'],
    ['the one whose disk was full', 'SINGLE', [silent], 'DEGRADED', 'DEGRADED'],
    ['the one that did not serve, and its successor stands by', 'SINGLE', [silent, standby()], 'ERROR', 'ERROR'],
    ['the one that did not serve, and its successor serves', 'SINGLE', [silent, carrier()], 'ERROR', null],
    ['the second as well', 'ACTIVE_STANDBY', [silent, silent], 'DEGRADED', 'DEGRADED'],
    ['the first, while the second does not have the VIP yet', 'ACTIVE_STANDBY', [silent, standby()], 'ERROR', 'ERROR'],
    ['the first, while the second has the VIP', 'ACTIVE_STANDBY', [silent, carrier()], 'ERROR', 'DEGRADED'],
    ['none', 'ACTIVE_STANDBY', [carrier(), standby()], 'ERROR', null],
  ] as const
  for (const [who, topology, carriers, before, expected] of silences) {
    t.equal(impairmentOf(topology, carriers, before), expected, `falls silent: ${who}`)
  }
  t.equal(worseOf('ONLINE', 'DEGRADED'), 'DEGRADED')
  t.equal(worseOf('DEGRADED', 'ERROR'), 'ERROR')
  t.equal(worseOf('ERROR', 'DEGRADED'), 'ERROR')
  t.equal(worseOf('OFFLINE', 'ERROR'), 'OFFLINE')
  t.equal(worseOf('DEGRADED', null), 'DEGRADED')
})
