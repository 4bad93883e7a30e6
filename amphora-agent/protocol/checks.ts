/** HAProxy's names of failed health checks (`check_status`), in the order of their codes in a report: append new ones. */
export const CHECK_STATUSES = [
  'SOCKERR',
  'L4TOUT',
  'L4CON',
  'L6TOUT',
  'L6RSP',
  'L7TOUT',
  'L7RSP',
  'L7STS',
  'PROCERR',
  'PROCTOUT',
] as const

export type CheckStatus = (typeof CHECK_STATUSES)[number]

/** Why the last health check of a member failed. */
export type FailedCheck = {
  status: CheckStatus
  /** Status code of the response; 0 if there was none. */
  code: number
  /** The cause in words of HAProxy or the kernel, such as `Connection refused`; may be empty. */
  words: string
}

export const MAX_CHECK_WORDS = 64
export const MAX_CHECK_CODE = 999

/** With these, the words come from the response: the member chooses them. */
const WORDED_BY_MEMBER: ReadonlySet<CheckStatus> = new Set(['L7RSP', 'L7STS', 'PROCERR', 'PROCTOUT'])

/** With these, nothing but the name says what happened. */
const BARE: ReadonlySet<CheckStatus> = new Set(['L4TOUT', 'L6TOUT', 'L7TOUT', 'L7RSP', 'PROCTOUT'])

export const isDetailed = (status: CheckStatus): boolean => !BARE.has(status)

/**
 * Reads the cells of `show stat`. What a member wrote is dropped: its status code says it, and other words at each check
 * would be news each time.
 * @returns null if the last check did not fail in a known way
 */
export function failedCheck(status: string, code: string, words: string): FailedCheck | null {
  const known = CHECK_STATUSES.find(name => name === status)
  if (known === undefined) return null
  const number = /^\d{1,3}$/.test(code) ? Number(code) : 0
  return { status: known, code: number, words: WORDED_BY_MEMBER.has(known) ? '' : checkWords(words) }
}

/** Makes any text valid words of a FailedCheck. */
export const checkWords = (text: string): string =>
  text
    .replaceAll(/[^ -~]+/g, ' ')
    .trim()
    .slice(0, MAX_CHECK_WORDS)
    .trimEnd()
