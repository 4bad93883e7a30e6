import fc from 'fast-check'
import { judgeSilence, type Liveness } from '../../../controller/health-manager/silence.js'

export const RHYTHM = { beatInterval: 3, staleAfter: 15 }

/** An amphora that sent a heartbeat a second ago, except for some fields. */
export function createLiveness(index: number, fields: Partial<Liveness> = {}): Liveness {
  return {
    amphoraId: `a${index}`,
    loadBalancerId: `lb${index}`,
    projectId: `p${index}`,
    silentSeconds: 1,
    heardSinceSeconds: 1000,
    ...fields,
  }
}

/**
 * Seconds of simulated time. Every amphora sends heartbeats while its link is up and it lives; some heartbeats
 * are lost.
 */
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

/**
 * Plays random stories: a network that is cut is never mistaken for dead amphorae, and the amphora that dies is
 * found in time.
 * @throws the shortest story found that contradicts this
 */
export function playSilences(numRuns: number): void {
  fc.assert(
    fc.property(story, ({ projects, cut, dies, diesAt, lost }) => {
      const dead = dies % projects.length
      const isCut = (index: number) => index < Math.max(3, projects.length * cut.share)
      // Two deaths in two projects do not count as a network outage.
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
          createLiveness(index, {
            projectId: `p${project}`,
            silentSeconds: now - beats[index]!.last,
            heardSinceSeconds: now - beats[index]!.since,
          }),
        )
        for (const [index, hearing] of hearings.entries()) {
          if (judgeSilence(hearing, hearings, RHYTHM) !== 'alone') continue
          if (!mayCountAsDead(index, now)) throw new Error(`${index} counts as dead at ${now}`)
          found ??= now
        }
      }
      const deadline = Math.max(diesAt + 20, cut.at + cut.seconds + 15)
      if (found === null || found > deadline)
        throw new Error(`the dead amphora was found at ${found}, after ${deadline}`)
    }),
    { numRuns },
  )
}
