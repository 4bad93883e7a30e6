import type * as z from 'zod'
import { stringsIn } from '../http/body.js'
import { badRequest } from '../http/errors.js'

/** A body may have thousands of invalid fields. */
const MAX_ISSUES = 10

/**
 * Validates untrusted input.
 * @throws ApiError 400 that names the invalid fields with their full paths
 */
export function parse<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  requireStorable(stringsIn(value), 'request body')
  const result = schema.safeParse(value, { reportInput: true })
  if (result.success) return result.data
  throw badRequest(
    result.error.issues
      .slice(0, MAX_ISSUES)
      .map(issue => `${placeOf(issue)}: ${reasonOf(issue)}.`)
      .join(' '),
  )
}

const placeOf = ({ path }: z.core.$ZodIssue): string =>
  path.length === 0 ? 'Invalid request body' : `Invalid input for field '${path.map(String).join('/')}'`

function reasonOf(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === undefined ? 'is required' : `must be ${KINDS[issue.expected] ?? issue.expected}`
    case 'too_small':
      return issue.minimum === 1 ? 'must not be empty' : `must have at least ${issue.minimum} ${unitOf(issue.origin)}`
    case 'too_big':
      return `must have at most ${issue.maximum} ${unitOf(issue.origin)}`
    case 'invalid_value':
      return `must be one of: ${issue.values.map(String).join(', ')}`
    case 'unrecognized_keys':
      return `has unknown attributes: ${issue.keys.slice(0, MAX_ISSUES).join(', ')}`
    case 'custom':
    case 'invalid_element':
    case 'invalid_format':
    case 'invalid_key':
    case 'invalid_union':
    case 'not_multiple_of':
      return issue.message
  }
}

const KINDS: Readonly<Record<string, string>> = {
  string: 'a string',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  null: 'null',
}

const unitOf = (origin: string): string => (origin === 'string' ? 'characters' : 'entries')

/** @param where the texts are @throws ApiError 400 if PostgreSQL cannot store one of them */
export function requireStorable(texts: readonly string[], where: 'path' | 'query' | 'request body'): void {
  if (texts.some(text => /[\0\p{Surrogate}]/u.test(text)))
    throw badRequest(`The ${where} contains characters that cannot be stored.`)
}
