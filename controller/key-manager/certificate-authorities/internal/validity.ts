/** How far clients' clocks may be behind. */
const CLOCK_SKEW_MS = 5 * 60_000
const DAY_MS = 86_400_000

export type Validity = { notBefore: Date; notAfter: Date }

/** The next `days` days, or what is requested of them, within the validity of the issuer. Pure. */
export function validityWithin(
  now: Date,
  days: number,
  issuer: Validity | null,
  requested: { notBefore: Date | null; notAfter: Date | null } = { notBefore: null, notAfter: null },
): Validity {
  const from = now.getTime() - CLOCK_SKEW_MS
  const to = now.getTime() + days * DAY_MS
  const start = Math.max(from, requested.notBefore?.getTime() ?? from)
  const end = Math.min(to, requested.notAfter?.getTime() ?? to)
  return {
    notBefore: new Date(Math.max(start, issuer?.notBefore.getTime() ?? start)),
    notAfter: new Date(Math.min(end, issuer?.notAfter.getTime() ?? end)),
  }
}

export const daysAfter = (date: Date, days: number): Date => new Date(date.getTime() + days * DAY_MS)
