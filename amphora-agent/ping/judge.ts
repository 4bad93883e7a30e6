import type { PingQuestion } from '../protocol/ping.js'

export type Verdict = 'up' | 'down'

/** Subjects to remember; beyond this, the one queried least recently is forgotten. */
const MAX_SUBJECTS = 20_000

/**
 * Turns ping results into verdicts. The first result decides; after that, the verdict changes after as many
 * consecutive results to the contrary as the question specifies (`rise`, `fall`).
 */
export function createJudge(): (question: PingQuestion, answered: boolean) => Verdict {
  const known = new Map<string, { verdict: Verdict; against: number }>()
  return ({ subject, rise, fall }, answered) => {
    const now: Verdict = answered ? 'up' : 'down'
    const before = known.get(subject) ?? { verdict: now, against: 0 }
    const against = now === before.verdict ? 0 : before.against + 1
    const turned = against >= (answered ? rise : fall)
    const status = turned ? { verdict: now, against: 0 } : { verdict: before.verdict, against }
    // Reinsert at the end, so that the first key is the least recently queried.
    known.delete(subject)
    known.set(subject, status)
    for (const oldest of known.keys()) {
      if (known.size <= MAX_SUBJECTS) break
      known.delete(oldest)
    }
    return status.verdict
  }
}
