import * as z from 'zod'
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
export const filledText = (maxLength?: number) =>
  (maxLength === undefined ? z.string() : textUpTo(maxLength)).min(1, 'must not be empty')

/** A member of a body: a whole number. */
export function wholeNumber(min: number, max: number) {
  const words = `must be a whole number from ${min} to ${max}`
  return z.int(words).min(min, words).max(max, words)
}

const TYPES: Readonly<Record<string, string>> = { string: 'a string', array: 'a list', boolean: 'true or false' }

/** What is wrong with a value, where the schema has no words of its own. */
function reasonOf(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.code === 'unrecognized_keys')
    return `has unknown members: ${issue.keys.slice(0, 5).join(', ').slice(0, 200)}`
  if (issue.code !== 'invalid_type') return undefined
  if (issue.input === undefined) return 'is required'
  return `must be ${TYPES[issue.expected] ?? 'an object'}`
}

/**
 * Checks a body against a schema.
 * @param label names the body in the message
 * @throws ApiError 400 that names the property and says what is wrong
 */
export function parseBody<Schema extends z.ZodType>(schema: Schema, value: unknown, label: string): z.output<Schema> {
  if (stringsIn(value).some(text => text.includes('\0'))) {
    throw badRequest(`The ${label} is invalid: it contains a NUL character.`)
  }
  const result = schema.safeParse(value, { error: reasonOf })
  if (result.success) return result.data
  const [issue] = result.error.issues
  const where =
    issue === undefined || issue.path.length === 0 ? 'it' : `"${issue.path.map(String).join('.').slice(0, 200)}"`
  throw badRequest(`The ${label} is invalid: ${where} ${issue?.message ?? 'is wrong'}.`)
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
