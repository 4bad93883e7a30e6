import { malformed } from '../problem.js'

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/
/** A certificate that ends sooner helps nobody. */
const MIN_LIFE_MS = 3_600_000
const DAY_MS = 86_400_000

export type RequestedValidity = { notBefore: Date | null; notAfter: Date | null }

/**
 * The validity that an order asks for. Pure.
 * @throws AcmeProblem malformed for one that the CA would not give
 */
export function parseValidity(
  { notBefore, notAfter }: { notBefore?: string | undefined; notAfter?: string | undefined },
  now: Date,
  maxDays: number,
): RequestedValidity {
  const [start, end] = [parseTime(notBefore), parseTime(notAfter)]
  const latest = new Date(now.getTime() + maxDays * DAY_MS)
  if (start !== null && (start < new Date(now.getTime() - MIN_LIFE_MS) || start > latest)) {
    throw malformed(`The notBefore must be between now and ${latest.toISOString()}.`)
  }
  const earliest = new Date(Math.max(now.getTime(), start?.getTime() ?? 0) + MIN_LIFE_MS)
  if (end !== null && (end < earliest || end > latest)) {
    throw malformed(`The notAfter must be between ${earliest.toISOString()} and ${latest.toISOString()}.`)
  }
  return { notBefore: start, notAfter: end }
}

function parseTime(text: string | undefined): Date | null {
  if (text === undefined) return null
  const time = new Date(text)
  if (RFC3339.test(text) && !Number.isNaN(time.getTime())) return new Date(Math.floor(time.getTime() / 1000) * 1000)
  throw malformed('The notBefore and notAfter must be times such as 2030-01-01T00:00:00Z.')
}
