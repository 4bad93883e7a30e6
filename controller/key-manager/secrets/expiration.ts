import { badRequest } from '../../http/errors.js'

const DATE = /(\d{4})-(\d{2})-(\d{2})|(\d{4})(\d{2})(\d{2})/
const TIME = /(\d{2}):?(\d{2})(?::?(\d{2})(?:[.,](\d{1,30}))?)?/
const ZONE = /Z|([+-]\d{2})(?::?(\d{2}))?/
const ISO = new RegExp(`^(?:${DATE.source})(?:[T ]${TIME.source})?\\s?(?:${ZONE.source})?$`, 'i')

/**
 * Parses an ISO 8601 time; without an offset it is UTC. Pure.
 * @returns the time in UTC with microseconds, `2030-01-01T00:00:00.000000Z`
 * @throws ApiError 400 unless it is a time of the years 1 to 9999
 */
export function parseTime(text: string, label: string): string {
  const wrong = () =>
    badRequest(`${label} is not an ISO 8601 time such as 2030-01-31T12:00:00: "${text.slice(0, 100)}".`)
  const parts = ISO.exec(text.trim())
  if (parts === null) throw wrong()
  const [year, month, day] = (parts[1] === undefined ? parts.slice(4, 7) : parts.slice(1, 4)).map(Number)
  const [hour, minute, second] = parts.slice(7, 10).map(part => Number(part ?? 0))
  const [fraction = '', hours = '+00', minutes = '00'] = parts.slice(10, 13)
  const offset = Number(hours) * 60 + Math.sign(Number(`${hours}1`)) * Number(minutes)
  const local = new Date(0)
  local.setUTCFullYear(year ?? 0, (month ?? 0) - 1, day)
  local.setUTCHours(hour ?? 0, minute, second)
  // Date would roll over days and hours that do not exist, such as 30 February.
  const isReal =
    local.getUTCMonth() + 1 === month && local.getUTCDate() === day && (hour ?? 0) < 24 && (minute ?? 0) < 60
  if (!isReal || (second ?? 0) > 59 || Number(minutes) > 59 || Math.abs(offset) >= 24 * 60) throw wrong()
  const utc = new Date(local.getTime() - offset * 60_000)
  if (utc.getUTCFullYear() < 1 || utc.getUTCFullYear() > 9999) throw wrong()
  return `${utc.toISOString().slice(0, 19)}.${fraction.padEnd(6, '0').slice(0, 6)}Z`
}

/**
 * When a new secret expires, to the millisecond; null for never.
 * @throws ApiError 400 for an invalid or past time
 */
export function parseExpiration(text: string | null | undefined): Date | null {
  if (text === undefined || text === null || text === '') return null
  const time = new Date(parseTime(text, 'The expiration'))
  if (time.getTime() <= Date.now()) throw badRequest('The expiration is in the past; without an offset it is UTC.')
  return time
}
