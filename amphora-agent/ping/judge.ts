import type { PingQuestion } from '../protocol/ping.js'

export type Verdict = 'up' | 'down'

/** A subject that nobody asks about any more is forgotten when so many others have been. */
const MOST_SUBJECTS = 20_000

/**
 * Turns answers and silences into verdicts: the first one decides, from then on it takes as many in a row as the question says to
 * change the verdict.
 */
export function createJudge(): (question: PingQuestion, answered: boolean) => Verdict {
  const known = new Map<string, { verdict: Verdict; against: number }>()
  return ({ subject, rise, fall }, answered) => {
    const now: Verdict = answered ? 'up' : 'down'
    const before = known.get(subject) ?? { verdict: now, against: 0 }
    const against = now === before.verdict ? 0 : before.against + 1
    const turned = against >= (answered ? rise : fall)
    const standing = turned ? { verdict: now, against: 0 } : { verdict: before.verdict, against }
    // the newest stands last, so that the first is who was not asked about for longest
    known.delete(subject)
    known.set(subject, standing)
    for (const oldest of known.keys()) {
      if (known.size <= MOST_SUBJECTS) break
      known.delete(oldest)
    }
    return standing.verdict
  }
}
