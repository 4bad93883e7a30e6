/**
 * When a certificate is renewed. All functions are pure: times are milliseconds since 1970.
 *
 * The rule: renewal begins at two thirds of the life, but no later than 21 days before the expiry where the life allows
 * it, and at half of the life where it does not.
 *
 * Why: nobody knows beforehand how long a CA will be away. A certificate survives an outage of 20 days only if 20 days
 * were left when the outage began, so at every moment each certificate must have more than 20 days left or have been
 * renewed already. Two thirds of 47 days leave 15.7 days, too few, and learning from earlier outages cannot help in the
 * first one. 21 days are the 20 and one day for the last attempts after the outage. The price is small: at 47 days a
 * certificate is renewed every 25.5 days on average instead of the 27 that any rule with this guarantee needs (6 % more
 * orders). From 63 days of life on, two thirds leave 21 days anyway, and the rule costs nothing. Below 42 days no rule can
 * keep 21 days and still use half of each certificate, so half of the life it is.
 */

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** What is left for an outage of the CA of 20 days, and the attempts after it. */
const RESERVE = 21 * DAY

/** Jitter is at most this part of the life; it only ever makes a renewal earlier. */
const JITTER_PART = 1 / 50

/** A CA whose own certificate ends soon issues ever shorter certificates: no renewal follows the last one at once. */
const MIN_AGE = 10 * MINUTE

const FIRST_PAUSE = MINUTE
const LONGEST_PAUSE = 6 * HOUR

export type Life = { notBefore: number; notAfter: number }

/** The CA's suggestion (RFC 9773): the time between which to renew. */
export type RenewalWindow = { start: number; end: number }

/** What must be left of a life when its renewal begins, whatever the CA suggests. */
const reserveOf = (life: number): number => Math.min(RESERVE, life / 2)

/** How long before the expiry renewal begins, without jitter. */
export const leadOf = ({ notBefore, notAfter }: Life): number =>
  Math.max((notAfter - notBefore) / 3, reserveOf(notAfter - notBefore))

/**
 * When to renew. With the CA's suggestion, a time in its window, but not so late that less than the reserve is left: the
 * suggestion of a CA that is then away for 20 days helps nobody.
 * @param chance 0 to 1, fixed per certificate: spreads certificates that were issued together
 */
export function renewalTime(life: Life, window: RenewalWindow | null, chance: number): number {
  const whole = life.notAfter - life.notBefore
  const latest = life.notAfter - reserveOf(whole)
  const planned =
    window === null
      ? life.notAfter - leadOf(life) - chance * whole * JITTER_PART
      : Math.min(window.start + chance * Math.max(0, window.end - window.start), latest - chance * whole * JITTER_PART)
  return Math.max(planned, life.notBefore + Math.min(MIN_AGE, whole / 2))
}

/**
 * The pause after a failed attempt: 1, 2, 4 ... minutes, at most six hours and at most a tenth of the time left, so that
 * several attempts follow the end of a long outage. Up to a quarter shorter by chance.
 * @param attempts failed ones since the last success, at least 1
 */
export function retryPause(attempts: number, timeLeft: number, chance: number): number {
  const longest = timeLeft <= 0 ? HOUR : Math.max(FIRST_PAUSE, Math.min(LONGEST_PAUSE, timeLeft / 10))
  return Math.min(longest, FIRST_PAUSE * 2 ** Math.min(attempts - 1, 20)) * (1 - chance / 4)
}

/** How long a rollback keeps the certificate from being renewed again: a day, or half of what is left. */
export const pauseAfterRollback = (timeLeft: number): number => Math.min(DAY, Math.max(0, timeLeft / 2))

/** Days before the expiry at which a notice is given; 0 says that the certificate has expired. */
const NOTICE_DAYS = [0, 1, 3, 7, 14, 30] as const

/** The levels that make sense for a life: when a renewal is overdue, or in the second half of a life without renewal. */
function noticeLevels(life: Life, renews: boolean): number[] {
  const most = renews ? leadOf(life) : (life.notAfter - life.notBefore) / 2
  return NOTICE_DAYS.filter(days => (renews ? days * DAY < most - DAY : days * DAY <= most))
}

/**
 * @param noticed the level of the last notice; null without one
 * @returns `level` of the notice that is due now, or null, and when the next one is due, or null
 */
export function noticeDue(
  life: Life,
  renews: boolean,
  noticed: number | null,
  now: number,
): { level: number | null; next: number | null } {
  const open = noticeLevels(life, renews).filter(days => noticed === null || days < noticed)
  const level = open.find(days => life.notAfter - days * DAY <= now) ?? null
  const later = open.filter(days => life.notAfter - days * DAY > now)
  const soonest = later.at(-1)
  return { level, next: soonest === undefined ? null : life.notAfter - soonest * DAY }
}

/** Whole days until the expiry, rounded down; 0 once it has expired. */
export const daysLeft = (notAfter: number, now: number): number => Math.max(0, Math.floor((notAfter - now) / DAY))

/** 0 to 1, the same for the same text: FNV-1a of 32 bits. */
export function chanceOf(text: string): number {
  let hash = 0x811c9dc5
  for (const code of Buffer.from(text)) hash = Math.imul(hash ^ code, 0x01000193)
  return (hash >>> 0) / 2 ** 32
}
