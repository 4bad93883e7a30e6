import fc from 'fast-check'
import t from 'tap'
import type { MemberState, Report } from '../../../amphora-agent/protocol/heartbeat.js'
import { addReport, readPicture } from '../../../controller/health-manager/operating/picture.js'
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
    checks: [],
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

t.test('a failed check belongs to the member until it is up again, and only to known members', async t => {
  const table = { listeners: [], pools: [{ poolId: 'p', listenerId: 'l', members: ['m1', 'm2'] }] }
  const check = { status: 'L4TOUT', code: 0, words: '' } as const
  const states = (...members: MemberState[]) =>
    createReport({ pools: [{ index: 0, state: 'UP', counters, firstMember: 0, members }] })
  let picture = addReport(undefined, states('UP', 'DOWN'))
  picture = addReport(
    picture,
    createReport({
      checks: [
        { pool: 0, check, members: [1, 2, 60_000] },
        { pool: 7, check, members: [0] },
      ],
    }),
  )
  t.same(readPicture(picture, table)?.failedChecks, new Map([['m2', check]]))
  t.equal(
    [...picture.checks.values()].reduce((sum, { size }) => sum + size, 0),
    1,
    'nothing else is kept',
  )
  picture = addReport(addReport(picture, states('UP', 'UP')), states('UP', 'DOWN'))
  t.same(readPicture(picture, table)?.failedChecks, new Map(), 'an older check does not explain a new failure')
})
