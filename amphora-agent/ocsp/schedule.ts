/** When a responder is asked. Times are in milliseconds of Unix time. Pure. */

const MINUTE_MS = 60_000
const SHORTEST_MS = 5 * MINUTE_MS
const LONGEST_MS = 60 * MINUTE_MS
const FIRST_RETRY_MS = 10_000
const LAST_RETRY_MS = 30 * MINUTE_MS

/** HAProxy staples no response that ends sooner. */
export const MARGIN_MS = 5 * MINUTE_MS

export type Asked = {
  /** Since the last answer that was good. */
  failures: number
  /** When it was asked last. */
  at: number
}

/**
 * When to ask again: at half of the response's life, at least hourly; after failures with growing pauses.
 * @param asked null if it was not asked yet @param until when the response ends that is held; null without one
 */
export function nextAt(asked: Asked | null, until: number | null): number {
  if (asked === null) return 0
  if (asked.failures > 0) return asked.at + Math.min(FIRST_RETRY_MS * 2 ** (asked.failures - 1), LAST_RETRY_MS)
  const half = until === null ? 0 : (until - asked.at) / 2
  return asked.at + Math.min(Math.max(half, SHORTEST_MS), LONGEST_MS)
}

/** Whether clients may be shown a response until this time. */
export const isServable = (until: number, now: number): boolean => until - now > MARGIN_MS
