import type { PingQuestion } from '../protocol/ping.js'

export type Verdict = 'up' | 'down'

/** A verdict, and how many results in a row contradict it. */
export type Standing = { verdict: Verdict; against: number }

/** The first result decides; then the verdict changes after `rise` or `fall` results in a row to the contrary. Pure. */
export function afterResult(
  before: Standing | null,
  passed: boolean,
  { rise, fall }: { rise: number; fall: number },
): Standing {
  const now: Verdict = passed ? 'up' : 'down'
  if (before === null || now === before.verdict) return { verdict: now, against: 0 }
  const against = before.against + 1
  return against >= (passed ? rise : fall) ? { verdict: now, against: 0 } : { verdict: before.verdict, against }
}

/** Subjects to remember; beyond this, the one queried least recently is forgotten. */
const MAX_SUBJECTS = 20_000

/** Turns ping results into verdicts, for each subject of questions separately. */
export function createJudge(): (question: PingQuestion, answered: boolean) => Verdict {
  const known = new Map<string, Standing>()
  return (question, answered) => {
    const { subject } = question
    const standing = afterResult(known.get(subject) ?? null, answered, question)
    // Reinsert at the end, so that the first key is the least recently queried.
    known.delete(subject)
    known.set(subject, standing)
    for (const oldest of known.keys()) {
      if (known.size <= MAX_SUBJECTS) break
      known.delete(oldest)
    }
    return standing.verdict
  }
}
