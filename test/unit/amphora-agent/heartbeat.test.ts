import { deepStrictEqual, strictEqual, throws } from 'node:assert'
import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { CHECK_STATUSES, checkWords, MAX_CHECK_CODE, MAX_CHECK_WORDS } from '../../../amphora-agent/protocol/checks.js'
import {
  decodeDatagram,
  encodeBeat,
  encodeReport,
  MAX_DATAGRAM,
} from '../../../amphora-agent/protocol/heartbeat/datagram.js'
import type { Beat, MemberState, Report } from '../../../amphora-agent/protocol/heartbeat.js'
import { MAX_REPAIR_LENGTH, MISMATCHES, REPAIR_KINDS } from '../../../amphora-agent/protocol/repairs.js'

const PLAIN = { noNullPrototype: true } as const
const KEY = Buffer.alloc(32, 7)
const anyKey = () => KEY

const hex8 = fc.uint8Array({ minLength: 8, maxLength: 8 }).map(bytes => Buffer.from(bytes).toString('hex'))
const counter = fc.oneof(fc.nat(300), fc.maxSafeNat())
const counters = fc.record(
  {
    bytesIn: counter,
    bytesOut: counter,
    activeConnections: counter,
    totalConnections: counter,
    requestErrors: counter,
  },
  PLAIN,
)
const envelope = {
  keyId: fc.integer({ min: 0, max: 255 }),
  amphoraId: fc.uuid(),
  bootId: hex8,
  sentMs: fc.maxSafeNat(),
  generation: fc.maxSafeNat(),
  needsApply: fc.boolean(),
  vrrpMaster: fc.boolean(),
  configHash: hex8,
}
const beats: fc.Arbitrary<Beat> = fc.record(
  {
    kind: fc.constant('beat' as const),
    ...envelope,
    seq: fc.maxSafeNat(),
    haproxyRunning: fc.boolean(),
    load: fc.integer({ min: 0, max: 0xffffffff }),
    freeMemoryKib: fc.maxSafeNat(),
    mismatches: fc.subarray([...MISMATCHES]),
  },
  PLAIN,
)
const memberStates = fc.constantFrom<MemberState>('UP', 'DOWN', 'DRAIN', 'MAINT', 'NO_CHECK', 'UNKNOWN')
const reports: fc.Arbitrary<Omit<Report, 'fragment' | 'seq'>> = fc.record(
  {
    kind: fc.constant('report' as const),
    ...envelope,
    epoch: hex8,
    listeners: fc.array(
      fc.record(
        {
          index: fc.nat(65535),
          state: fc.constantFrom('OPEN' as const, 'FULL' as const, 'DOWN' as const),
          counters,
        },
        PLAIN,
      ),
      { maxLength: 60 },
    ),
    pools: fc.array(
      fc.record(
        {
          index: fc.nat(65535),
          state: fc.constantFrom('UP' as const, 'DOWN' as const),
          counters,
          firstMember: fc.constant(0),
          members: fc.oneof(fc.array(memberStates, { maxLength: 9 }), fc.array(memberStates, { maxLength: 6000 })),
        },
        PLAIN,
      ),
      { maxLength: 30 },
    ),
    checks: fc.array(
      fc.record(
        {
          pool: fc.nat(65535),
          check: fc.record(
            {
              status: fc.constantFrom(...CHECK_STATUSES),
              code: fc.nat(MAX_CHECK_CODE),
              words: fc.string({ maxLength: 2 * MAX_CHECK_WORDS, unit: 'binary' }).map(checkWords),
            },
            PLAIN,
          ),
          members: fc.oneof(
            fc.array(fc.nat(65535), { minLength: 1, maxLength: 9 }),
            fc.array(fc.nat(65535), { minLength: 1, maxLength: 3000 }),
          ),
        },
        PLAIN,
      ),
      { maxLength: 20 },
    ),
    repairs: fc.array(
      fc.record(
        {
          kind: fc.constantFrom(...REPAIR_KINDS),
          atMs: fc.maxSafeNat(),
          text: fc.string({ maxLength: MAX_REPAIR_LENGTH, unit: 'grapheme-ascii' }),
        },
        PLAIN,
      ),
      { maxLength: 20 },
    ),
  },
  PLAIN,
)

/** What a receiver knows after each fragment, in the given order. */
function reassemble(fragments: readonly Report[]) {
  const pools = new Map<number, Report['pools'][number]>()
  const listeners: Report['listeners'] = []
  for (const fragment of fragments) {
    listeners.push(...fragment.listeners)
    for (const pool of fragment.pools) {
      const known = pools.get(pool.index) ?? { ...pool, firstMember: 0, members: [] }
      const members = [...known.members]
      pool.members.forEach((state, i) => {
        members[pool.firstMember + i] = state
      })
      pools.set(pool.index, { ...known, members })
    }
  }
  return { listeners, pools: [...pools.values()], repairs: fragments.flatMap(({ repairs }) => repairs) }
}

/** `pool position check` of each member that a report explains, in its order. */
const explained = (checks: Report['checks']): string[] =>
  checks.flatMap(({ pool, check, members }) => members.map(member => `${pool} ${member} ${JSON.stringify(check)}`))

/** An older health manager refuses a fragment with checks, so that nothing else may be in it. */
function olderReads({ checks, listeners, pools, repairs }: Report): boolean {
  return checks.length === 0 || listeners.length + pools.length + repairs.length === 0
}

t.test('a beat survives encoding and always has the same size', t => {
  fc.assert(
    fc.property(beats, beat => {
      const datagram = encodeBeat(beat, KEY)
      deepStrictEqual(decodeDatagram(datagram, anyKey), beat)
      return datagram.length === 115
    }),
    { numRuns: 200 },
  )
  t.end()
})

t.test('a report is complete after its fragments, each of which fits a datagram and decodes alone', t => {
  fc.assert(
    fc.property(reports, fc.boolean(), (generated, reversed) => {
      const byIndex = new Map(generated.pools.map(pool => [pool.index, pool]))
      const report = { ...generated, pools: [...byIndex.values()] }
      let seq = 40
      const datagrams = encodeReport(report, KEY, () => ++seq)
      const decoded = datagrams.map(datagram => decodeDatagram(datagram, anyKey) as Report)
      if (!datagrams.every(datagram => datagram.length <= MAX_DATAGRAM)) return false
      deepStrictEqual(
        decoded.map(fragment => fragment.seq),
        datagrams.map((_, i) => 41 + i),
      )
      deepStrictEqual(
        decoded.map(fragment => fragment.fragment),
        datagrams.map((_, index) => ({ index, count: datagrams.length })),
      )
      for (const fragment of decoded) {
        strictEqual(fragment.epoch, report.epoch)
        strictEqual(fragment.configHash, report.configHash)
      }
      const whole = reassemble(reversed ? decoded.toReversed() : decoded)
      if (!reversed) {
        deepStrictEqual(whole, { listeners: report.listeners, pools: report.pools, repairs: report.repairs })
      }
      if (!reversed)
        deepStrictEqual(
          decoded.flatMap(each => explained(each.checks)),
          explained(report.checks),
        )
      if (!decoded.every(olderReads)) return false
      strictEqual(whole.listeners.length, report.listeners.length)
      return whole.pools.every(pool => pool.members.length === byIndex.get(pool.index)!.members.length)
    }),
    { numRuns: 60 },
  )
  t.end()
})

t.test('ten listeners with ten members each fit into one datagram', t => {
  const load = {
    bytesIn: 2 ** 34,
    bytesOut: 2 ** 38,
    activeConnections: 900,
    totalConnections: 2 ** 27,
    requestErrors: 99,
  }
  const size = (listeners: number, members: number) =>
    encodeReport(
      {
        kind: 'report',
        keyId: 1,
        amphoraId: '6f5a7c1e-5f3a-4c57-9a86-0d2f1f3f9a11',
        bootId: 'ab'.repeat(8),
        sentMs: 1.8e12,
        generation: 12,
        needsApply: false,
        vrrpMaster: false,
        configHash: '00'.repeat(8),
        epoch: '01'.repeat(8),
        listeners: Array.from({ length: listeners }, (_, index) => ({ index, state: 'OPEN', counters: load })),
        pools: Array.from({ length: listeners }, (_, index) => ({
          index,
          state: 'UP',
          counters: load,
          firstMember: 0,
          members: Array<MemberState>(members).fill('UP'),
        })),
        checks: [],
        repairs: [],
      },
      KEY,
      () => 1,
    ).length
  t.equal(size(0, 0), 1)
  t.equal(size(10, 10), 1)
  t.ok(size(50, 50) <= 5)
  t.ok(size(200, 50) <= 19)
  t.end()
})

t.test('a report of more than 255 datagrams becomes several reports', t => {
  fc.assert(
    fc.property(
      beats,
      ({ kind: _, seq: __, haproxyRunning: ___, load: ____, freeMemoryKib: _____, mismatches: ______, ...rest }) => {
        const none = { bytesIn: 0, bytesOut: 0, activeConnections: 0, totalConnections: 0, requestErrors: 0 }
        const pools = Array.from({ length: 16 }, (_, index) => ({
          index,
          state: 'UP' as const,
          counters: none,
          firstMember: 0,
          members: Array<MemberState>(60_000).fill('DOWN'),
        }))
        const datagrams = encodeReport(
          { ...rest, kind: 'report', epoch: '00'.repeat(8), listeners: [], pools, checks: [], repairs: [] },
          KEY,
          () => 1,
        )
        const fragments = datagrams.map(datagram => (decodeDatagram(datagram, anyKey) as Report).fragment)
        t.ok(datagrams.length > 255)
        t.strictSame(fragments[254], { index: 254, count: 255 })
        t.strictSame(fragments[255], { index: 0, count: Math.min(255, datagrams.length - 255) })
        return true
      },
    ),
    { numRuns: 1 },
  )
  t.end()
})

t.test('a datagram with one flipped bit is refused', t => {
  fc.assert(
    fc.property(
      beats,
      reports,
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (beat, report, where) => {
        for (const datagram of [encodeBeat(beat, KEY), encodeReport(report, KEY, () => 1)[0]!]) {
          const bit = Math.floor(where * datagram.length * 8)
          datagram[bit >> 3]! ^= 1 << (bit & 7)
          if (decodeDatagram(datagram, anyKey) !== null) return false
        }
        return true
      },
    ),
    { numRuns: 500 },
  )
  t.end()
})

t.test('truncated and extended datagrams are refused', t => {
  fc.assert(
    fc.property(beats, beat => {
      const datagram = encodeBeat(beat, KEY)
      for (let length = 0; length < datagram.length; length++) {
        if (decodeDatagram(datagram.subarray(0, length), anyKey) !== null) return false
      }
      return decodeDatagram(Buffer.concat([datagram, Buffer.alloc(1)]), anyKey) === null
    }),
    { numRuns: 20 },
  )
  t.end()
})

t.test('a datagram under a wrong or unknown key is refused, and its own key is looked up', t => {
  fc.assert(
    fc.property(beats, beat => {
      const datagram = encodeBeat(beat, KEY)
      const asked: unknown[] = []
      const decoded = decodeDatagram(datagram, (keyId, amphoraId) => {
        asked.push([keyId, amphoraId])
        return null
      })
      strictEqual(decoded, null)
      deepStrictEqual(asked, [[beat.keyId, beat.amphoraId]])
      return decodeDatagram(datagram, () => Buffer.alloc(32, 8)) === null
    }),
    { numRuns: 50 },
  )
  t.end()
})

t.test('arbitrary bytes never throw, even with a valid MAC', t => {
  const sealed = fc
    .tuple(
      fc.uint8Array({ minLength: 60, maxLength: 60 }),
      fc.uint8Array({ maxLength: 1400 }),
      fc.constantFrom(1, 2, 3),
    )
    .map(([head, payload, kind]) => {
      const bytes = Buffer.concat([head, payload])
      bytes.write('LBHB')
      bytes.writeUInt8(1, 4)
      bytes.writeUInt8(kind, 5)
      bytes.writeUInt8(bytes.readUInt8(7) & 14, 7)
      for (const offset of [32, 40, 48]) bytes.writeUInt16BE(0, offset)
      bytes.writeUInt16BE(payload.length, 58)
      return Buffer.concat([bytes, createHmac('sha256', KEY).update(bytes).digest()])
    })
  fc.assert(
    fc.property(
      fc.oneof(
        sealed,
        fc.uint8Array({ maxLength: 2000 }).map(bytes => Buffer.from(bytes)),
      ),
      bytes => {
        const decoded = decodeDatagram(bytes, anyKey)
        return decoded === null || (bytes.length <= MAX_DATAGRAM && ['beat', 'report'].includes(decoded.kind))
      },
    ),
    { numRuns: 2000 },
  )
  t.end()
})

t.test('encoding refuses a number out of range', t => {
  fc.assert(
    fc.property(beats, beat => {
      throws(() => encodeBeat({ ...beat, load: -1 }, KEY), RangeError)
      throws(() => encodeBeat({ ...beat, seq: -1 }, KEY), RangeError)
      return true
    }),
    { numRuns: 5 },
  )
  t.end()
})
