import { badRequest } from '../../http/errors.js'

const ISO = /^(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?)?(Z|[+-]\d{2}:?\d{2})?$/

/**
 * Reads an ISO 8601 time; one without an offset is UTC. Pure.
 * @throws ApiError 400
 */
export function parseTime(text: string, label: string): Date {
  const parts = ISO.exec(text.trim())
  if (parts === null) throw badRequest(`${label} is not an ISO 8601 time: "${text.slice(0, 100)}".`)
  const [, year, month, day, hour = '00', minute = '00', second = '00', offset = 'Z'] = parts
  const zone = offset === 'Z' || offset.includes(':') ? offset : `${offset.slice(0, 3)}:${offset.slice(3)}`
  const time = new Date(`${year}-${month}-${day}T${hour}:${minute}:${second}${zone}`)
  if (Number.isNaN(time.getTime())) throw badRequest(`${label} is not an ISO 8601 time: "${text.slice(0, 100)}".`)
  return time
}

/** When a new secret ends; null for never. @throws ApiError 400 for what is no time or is past */
export function parseExpiration(text: string | null | undefined): Date | null {
  if (text === undefined || text === null || text === '') return null
  const time = parseTime(text, 'The expiration')
  if (time.getTime() <= Date.now()) throw badRequest('The expiration lies in the past.')
  return time
}
