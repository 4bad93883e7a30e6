import type { z } from 'zod'
import { stringsIn } from '../http/body.js'
import { badRequest } from '../http/errors.js'

/**
 * Validates untrusted input.
 * @throws ApiError 400 that names every invalid field with its full path
 */
export function parse<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  if (!stringsIn(value).every(isStorable))
    throw badRequest('The request body contains characters that cannot be stored.')
  const result = schema.safeParse(value)
  if (result.success) return result.data
  throw badRequest(
    result.error.issues
      .map(issue => `Invalid input for field '${issue.path.map(String).join('/')}': ${issue.message}.`)
      .join(' '),
  )
}

/** Whether PostgreSQL can store the text. */
export function isStorable(text: string): boolean {
  return !/[\0\p{Surrogate}]/u.test(text)
}
