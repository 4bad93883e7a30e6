/** Clocks of others may be behind by this much. */
const EARLIER_MS = 5 * 60_000
const DAY_MS = 86_400_000

export type Validity = { notBefore: Date; notAfter: Date }

/** From now on for some days, but never outside the time of the issuer. Pure. */
export function validityWithin(now: Date, days: number, issuer: Validity | null): Validity {
  const from = now.getTime() - EARLIER_MS
  const to = now.getTime() + days * DAY_MS
  return {
    notBefore: new Date(Math.max(from, issuer?.notBefore.getTime() ?? from)),
    notAfter: new Date(Math.min(to, issuer?.notAfter.getTime() ?? to)),
  }
}

export const daysAfter = (date: Date, days: number): Date => new Date(date.getTime() + days * DAY_MS)
