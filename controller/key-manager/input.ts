import { z } from 'zod'
import { stringsIn } from '../http/body.js'
import { badRequest } from '../http/errors.js'

/** Trims every string in a value, but not the keys. */
export function trimmed(value: unknown): unknown {
  if (typeof value === 'string') return value.trim()
  if (Array.isArray(value)) return value.map(trimmed)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, trimmed(inner)]))
}

/** A member of a body: a text that may be empty. */
export const textUpTo = (maxLength: number) => z.string().max(maxLength, `must have at most ${maxLength} characters`)

/** A member of a body: a text that must not be empty. */
export const filledText = (maxLength = Number.POSITIVE_INFINITY) => textUpTo(maxLength).min(1, 'must not be empty')

/**
 * Checks a body against a schema.
 * @param label names the body in the message
 * @throws ApiError 400 that names the property and says what is wrong
 */
export function parseBody<Schema extends z.ZodType>(schema: Schema, value: unknown, label: string): z.output<Schema> {
  if (stringsIn(value).some(text => text.includes('\0'))) {
    throw badRequest(`The ${label} is invalid: it contains a NUL character.`)
  }
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const [issue] = result.error.issues
  const where = issue === undefined || issue.path.length === 0 ? 'the body' : `"${issue.path.map(String).join('.')}"`
  throw badRequest(`The ${label} is invalid: ${where}: ${issue?.message ?? 'invalid value'}.`)
}

/**
 * A query parameter; null when it is missing or empty.
 * @throws ApiError 400 for a NUL character, which PostgreSQL rejects
 */
export function queryText(query: URLSearchParams, name: string): string | null {
  const text = query.get(name) || null
  if (text?.includes('\0') === true) throw badRequest(`The query parameter ${name} contains a NUL character.`)
  return text
}
