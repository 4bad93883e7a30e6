import type { Logger } from '../../log/log.js'

/** Above this, tokens are taken for ended too early or too late. */
export const MOST_SKEW_SECONDS = 60

const BETWEEN_WARNINGS_MS = 600_000

/**
 * @param date the Date header of an answer that has just come
 * @returns seconds by which its sender's clock is ahead of ours; null when it tells no time
 */
export function clockSkewSeconds(date: string | undefined, now = Date.now()): number | null {
  const time = Date.parse(date ?? '')
  return Number.isNaN(time) ? null : Math.round((time - now) / 1000)
}

/** @returns what looks at each answer's Date header, and warns now and then while the clocks are more than a minute apart */
export function createClockWatch(log: Logger): (date: string | undefined) => void {
  let quietUntil = 0
  return date => {
    const skew = clockSkewSeconds(date)
    if (skew === null || Math.abs(skew) <= MOST_SKEW_SECONDS || performance.now() < quietUntil) return
    quietUntil = performance.now() + BETWEEN_WARNINGS_MS
    log.warn({ skewSeconds: skew }, skewWords(skew))
  }
}

export const skewWords = (skewSeconds: number): string =>
  `Keystone's clock is ${Math.abs(skewSeconds)} s ${skewSeconds > 0 ? 'ahead of' : 'behind'} this machine's: tokens end at the wrong time. Let both machines follow NTP`
