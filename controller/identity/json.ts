import type { z } from 'zod'
import { stringsIn } from '../http/body.js'
import { badRequest } from '../http/errors.js'

/**
 * Checks a value from outside against a schema.
 * @throws ApiError 400 that names every fault with its full path
 */
export function parse<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  if (!stringsIn(value).every(isStorable)) throw badRequest('The request body holds a NUL character.')
  const result = schema.safeParse(value)
  if (result.success) return result.data
  throw badRequest(
    result.error.issues
      .map(issue => `Invalid input for field '${issue.path.map(String).join('/')}': ${issue.message}.`)
      .join(' '),
  )
}

/** True for text that PostgreSQL can store. */
export function isStorable(text: string): boolean {
  return !/[\0\p{Surrogate}]/u.test(text)
}
