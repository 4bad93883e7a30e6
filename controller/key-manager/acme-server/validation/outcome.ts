import type { ProblemType } from '../problem.js'

/** What became of one attempt to validate a challenge. */
export type Outcome =
  | { kind: 'valid' }
  /** Final: what was found is not the answer to the challenge. */
  | { kind: 'invalid'; type: ProblemType; detail: string }
  /** Nothing was found out: worth another attempt. */
  | { kind: 'unreachable'; type: ProblemType; detail: string }

export const VALID: Outcome = { kind: 'valid' }

export const invalid = (type: ProblemType, detail: string): Outcome => ({ kind: 'invalid', type, detail })

export const unreachable = (type: ProblemType, detail: string): Outcome => ({ kind: 'unreachable', type, detail })
