import { setImmediate } from 'node:timers/promises'
import * as z from 'zod'
import { badRequest } from '../../http/errors.js'
import { isObject, MISSING } from './values.js'

/** Limit of issues in one answer; a body may have thousands. */
const MAX_ISSUES = 10

/** Bodies that hold a `listOf`. */
const withLists = new WeakSet<z.ZodType>()

/** Schema of `{"<wrapper>": {...}}`; its output is the inner object. */
export function wrappedBody<T>(wrapper: string, inside: z.ZodType<T>): z.ZodType<T> {
  return z.strictObject({ [wrapper]: inside }).transform(body => body[wrapper] as T)
}

/** The same for a schema with a `listOf`. Parsing yields to other requests between items. */
export function wrappedBodyWithLists<T>(wrapper: string, inside: z.ZodType<T>): z.ZodType<T> {
  const schema = wrappedBody(wrapper, inside)
  withLists.add(schema)
  return schema
}

/**
 * Parses a body.
 * @throws ApiError 400 that names the invalid and unknown attributes
 */
export function readBody<T>(schema: z.ZodType<T>, body: unknown): T | Promise<T> {
  if (body === undefined) throw badRequest('The request needs a JSON body.')
  if (!withLists.has(schema)) return unwrap(body, schema.safeParse(body))
  return schema.safeParseAsync(body).then(result => unwrap(body, result))
}

function unwrap<T>(body: unknown, result: z.ZodSafeParseResult<T>): T {
  if (result.success) return result.data
  throw badRequest(describeIssues(body, result.error.issues))
}

/** List items to parse before yielding: about two milliseconds of work. */
const ITEMS_PER_SLICE = 50
let itemsParsed = 0

/**
 * A list of objects, for wrappedBodyWithLists. Parsing stops once the issues fill an answer: a body has room
 * for tens of thousands of empty objects, and describing them all would block every other request for seconds.
 */
export function listOf<T>(item: z.ZodType<T>): z.ZodType<T[]> {
  return z
    .unknown()
    .transform(async (value, context): Promise<T[]> => {
      if (!Array.isArray(value)) {
        context.addIssue({ code: 'custom', message: value === undefined ? MISSING : 'Value should be a list' })
        return z.NEVER
      }
      const items: T[] = []
      let wrong = 0
      for (const [index, element] of value.entries()) {
        if (++itemsParsed % ITEMS_PER_SLICE === 0) await setImmediate()
        const result = await item.safeParseAsync(element)
        if (result.success) items.push(result.data)
        else {
          const { issues } = result.error
          for (const issue of issues) context.issues.push({ ...issue, path: [index, ...issue.path], input: element })
          wrong += issues.length
        }
        if (wrong > MAX_ISSUES) break
      }
      return items
    })
    .meta({
      type: 'array',
      // A getter, because only the API description needs it.
      get items() {
        const { $schema: _, ...form } = z.toJSONSchema(item, { io: 'input', unrepresentable: 'any' })
        return form
      },
    })
}

type Issue = z.core.$ZodIssue

export function describeIssues(body: unknown, issues: readonly Issue[]): string {
  const sentences = issues.slice(0, MAX_ISSUES).map(issue => describeIssue(body, issue))
  if (issues.length > MAX_ISSUES) sentences.push('and more')
  return sentences.join('; ')
}

function describeIssue(body: unknown, issue: Issue): string {
  if (issue.code === 'unrecognized_keys') {
    const argument = issue.path.length === 0 ? 'body' : nameOf(issue.path)
    const keys = issue.keys.slice(0, MAX_ISSUES).map(key => shorten(key))
    return `Unknown attribute${issue.keys.length > 1 ? 's' : ''} for argument ${argument}: ${keys.join(', ')}`
  }
  // Attributes of the object itself appear by name, those of nested objects by path, those of a list by list and path.
  const isInside = issue.path.length > 1 && typeof issue.path[1] !== 'number'
  const name = nameOf(isInside ? issue.path.slice(1) : issue.path) || 'body'
  const value = valueAt(body, issue.path)
  return invalidInput(name, value, issue.code === 'custom' ? issue.message : reasonOf(issue, value))
}

function reasonOf(issue: Issue, value: unknown): string {
  if (issue.code !== 'invalid_type') return issue.message
  if (value === undefined) return MISSING
  return issue.expected === 'array' ? 'Value should be a list' : 'Value should be an object'
}

export function invalidInput(name: string, value: unknown, reason: string): string {
  return `Invalid input for field/attribute ${name}. Value: '${shorten(displayed(value))}'. ${reason}`
}

const nameOf = (path: readonly PropertyKey[]): string =>
  shorten(
    path.reduce<string>(
      (name, key) =>
        typeof key === 'number' ? `${name}[${key}]` : name === '' ? String(key) : `${name}.${String(key)}`,
      '',
    ),
  )

function valueAt(body: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((value, key) => {
    if (Array.isArray(value) && typeof key === 'number') return value[key]
    return isObject(value) && typeof key === 'string' && Object.hasOwn(value, key) ? value[key] : undefined
  }, body)
}

/** As Octavia shows values: null and missing values are None. */
function displayed(value: unknown): string {
  if (value === undefined || value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  return typeof value === 'string' ? value : JSON.stringify(value)
}

const shorten = (text: string): string => (text.length > 200 ? `${text.slice(0, 200)}...` : text)
