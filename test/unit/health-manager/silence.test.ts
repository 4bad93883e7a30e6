import fc from 'fast-check'
import t from 'tap'
import { type Hearing, type Silence, silenceOf } from '../../../controller/health-manager/silence.js'

const RHYTHM = { beatInterval: 3, staleAfter: 15 }

function createHearing(index: number, fields: Partial<Hearing> = {}): Hearing {
  return {
    amphoraId: `a${index}`,
    loadBalancerId: `lb${index}`,
    projectId: `p${index}`,
    silentSeconds: 1,
    heardSinceSeconds: 1000,
    ...fields,
  }
}

t.test('what a silence says', async t => {
  const silent = createHearing(0, { silentSeconds: 16 })
  const fleet = (fields: Partial<Hearing> = {}) => Array.from({ length: 9 }, (_, at) => createHearing(at + 1, fields))
  const cases: [string, Silence, Hearing, Hearing[]][] = [
    ['not long enough', 'unsure', createHearing(0, { silentSeconds: 15 }), fleet()],
    ['nobody else is there', 'unsure', silent, []],
    ['everybody else was heard', 'alone', silent, fleet()],
    ['everybody fell silent', 'together', silent, fleet({ silentSeconds: 14 })],
    ['all the others fell silent long before or after', 'unsure', silent, fleet({ silentSeconds: 60 })],
    ['all have only just come back', 'together', silent, fleet({ heardSinceSeconds: 2 })],
    [
      'two others fell silent with it',
      'together',
      silent,
      [...fleet(), ...[20, 21].map(at => createHearing(at, { silentSeconds: 13 }))],
    ],
    [
      'another of its project fell silent with it',
      'together',
      silent,
      [...fleet(), createHearing(20, { projectId: 'p0', silentSeconds: 13 })],
    ],
    [
      'the other one of its pair fell silent with it',
      'alone',
      silent,
      [...fleet(), createHearing(20, { loadBalancerId: 'lb0', silentSeconds: 13 })],
    ],
    [
      'ten of one other project fell silent with it',
      'alone',
      silent,
      [
        ...fleet(),
        ...Array.from({ length: 10 }, (_, at) => createHearing(20 + at, { projectId: 'hostile', silentSeconds: 16 })),
      ],
    ],
  ]
  for (const [name, expected, one, others] of cases) t.equal(silenceOf(one, [one, ...others], RHYTHM), expected, name)
})

/** Seconds of simulated time in which every amphora beats while its link is whole and it lives; beats may be lost now and then. */
type Story = {
  projects: number[]
  cut: { at: number; seconds: number; share: number }
  dies: number
  diesAt: number
  lost: number
}

const LAST_SECOND = 140

const story: fc.Arbitrary<Story> = fc.record({
  projects: fc.array(fc.nat(5), { minLength: 6, maxLength: 30 }),
  cut: fc.record({
    at: fc.integer({ min: 20, max: 40 }),
    seconds: fc.integer({ min: 1, max: 60 }),
    share: fc.constantFrom(0.5, 1),
  }),
  dies: fc.nat(29),
  diesAt: fc.integer({ min: 20, max: 100 }),
  lost: fc.nat(6),
})

t.test('a dead network is never taken for deaths, and every death is found', async t => {
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(story, ({ projects, cut, dies, diesAt, lost }) => {
        const dead = dies % projects.length
        const isCut = (index: number) => index < Math.max(3, projects.length * cut.share)
        // Two deaths in two projects are no network.
        const isNetwork = (index: number) => {
          const others = projects.filter((_, other) => other !== index && other !== dead && isCut(other))
          return others.includes(projects[index]!) || new Set(others).size >= 2
        }
        const mayCountAsDead = (index: number, now: number) =>
          (index === dead && now >= diesAt) || (isCut(index) && !isNetwork(index))
        const beats = projects.map(() => ({ last: 0, since: 0 }))
        let found: number | null = null
        for (let now = 1; now <= LAST_SECOND; now++) {
          for (const [index, beat] of beats.entries()) {
            if ((now + index) % RHYTHM.beatInterval !== 0) continue
            const isLost = (now * 7 + index * 13) % 29 === lost
            const silent =
              (index === dead && now >= diesAt) || (isCut(index) && now >= cut.at && now < cut.at + cut.seconds)
            if (silent || isLost) continue
            if (now - beat.last > 7.5) beat.since = now
            beat.last = now
          }
          const hearings = projects.map((project, index) =>
            createHearing(index, {
              projectId: `p${project}`,
              silentSeconds: now - beats[index]!.last,
              heardSinceSeconds: now - beats[index]!.since,
            }),
          )
          for (const [index, hearing] of hearings.entries()) {
            if (silenceOf(hearing, hearings, RHYTHM) !== 'alone') continue
            if (!mayCountAsDead(index, now)) throw new Error(`${index} counts as dead at ${now}`)
            found ??= now
          }
        }
        const deadline = Math.max(diesAt + 20, cut.at + cut.seconds + 15)
        if (found === null || found > deadline) throw new Error(`the dead one was found at ${found}, after ${deadline}`)
      }),
      { numRuns: 5000 },
    ),
  )
})
