/** How far clients' clocks may be behind. */
const CLOCK_SKEW_MS = 5 * 60_000
const DAY_MS = 86_400_000

export type Validity = { notBefore: Date; notAfter: Date }

/** The next `days` days, within the validity of the issuer. Pure. */
export function validityWithin(now: Date, days: number, issuer: Validity | null): Validity {
  const from = now.getTime() - CLOCK_SKEW_MS
  const to = now.getTime() + days * DAY_MS
  return {
    notBefore: new Date(Math.max(from, issuer?.notBefore.getTime() ?? from)),
    notAfter: new Date(Math.min(to, issuer?.notAfter.getTime() ?? to)),
  }
}

export const daysAfter = (date: Date, days: number): Date => new Date(date.getTime() + days * DAY_MS)
