import fc from 'fast-check'
import t from 'tap'
import { maglevTable, tableSize } from '../../../amphora-agent/datagrams/schedules/maglev.js'
import { leastLoadedTurns, weightedTurns } from '../../../amphora-agent/datagrams/schedules/turns.js'
import { memberId } from '../../support/worlds/datagrams-desired.js'

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
