import type { Logger } from '../../log/log.js'

/** With a larger skew, tokens expire noticeably too early or too late. */
export const MAX_SKEW_SECONDS = 60

const WARNING_INTERVAL_MS = 600_000

/**
 * @param date the Date header of a fresh answer
 * @returns seconds by which the sender's clock is ahead of this machine's; null without a valid date
 */
export function clockSkewSeconds(date: string | undefined, now = Date.now()): number | null {
  const time = Date.parse(date ?? '')
  return Number.isNaN(time) ? null : Math.round((time - now) / 1000)
}

/** @returns a function that checks each answer's Date header and warns at intervals while the skew exceeds a minute */
export function createClockWatch(log: Logger): (date: string | undefined) => void {
  let quietUntil = 0
  return date => {
    const skew = clockSkewSeconds(date)
    if (skew === null || Math.abs(skew) <= MAX_SKEW_SECONDS || performance.now() < quietUntil) return
    quietUntil = performance.now() + WARNING_INTERVAL_MS
    log.warn({ skewSeconds: skew }, describeSkew(skew))
  }
}

export const describeSkew = (skewSeconds: number): string =>
  `Keystone's clock is ${Math.abs(skewSeconds)} s ${skewSeconds > 0 ? 'ahead of' : 'behind'} this machine's, so tokens expire at the wrong time. Synchronise both clocks with NTP`
