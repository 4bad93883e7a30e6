import { z } from 'zod'
import { stringsIn } from '../http/body.js'
import { badRequest } from '../http/errors.js'

/** The value with the white space around each of its strings gone; keys stay as they are. */
export function trimmed(value: unknown): unknown {
  if (typeof value === 'string') return value.trim()
  if (Array.isArray(value)) return value.map(trimmed)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, trimmed(inner)]))
}

/** A member of a body: a text that may be empty. */
export const textUpTo = (most: number) => z.string().max(most, `must have at most ${most} characters`)

/** A member of a body: a text that says something. */
export const filledText = (most = Number.POSITIVE_INFINITY) => textUpTo(most).min(1, 'must not be empty')

/**
 * Checks a body against a schema.
 * @param label what the body is, for the message
 * @throws ApiError 400 that names the property and what is wrong with it
 */
export function parseBody<Schema extends z.ZodType>(schema: Schema, value: unknown, label: string): z.output<Schema> {
  if (stringsIn(value).some(text => text.includes('\0'))) {
    throw badRequest(`The ${label} cannot be accepted: it holds a NUL character.`)
  }
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const [issue] = result.error.issues
  const where = issue === undefined || issue.path.length === 0 ? 'the body' : `"${issue.path.map(String).join('.')}"`
  throw badRequest(`The ${label} cannot be accepted: ${where}: ${issue?.message ?? 'not understood'}.`)
}

/**
 * A query parameter; null when it is not given or empty.
 * @throws ApiError 400 for one that the database could not take
 */
export function queryText(query: URLSearchParams, name: string): string | null {
  const text = query.get(name) || null
  if (text?.includes('\0') === true) throw badRequest(`The query parameter ${name} holds a NUL character.`)
  return text
}
