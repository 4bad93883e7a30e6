import { setImmediate } from 'node:timers/promises'
import { z } from 'zod'
import { badRequest } from '../../http/errors.js'
import { isObject, MISSING } from './values.js'

/** Most issues that one answer names; a body may have thousands. */
const MOST_ISSUES = 10

/** Bodies that hold a `listOf`. */
const withLists = new WeakSet<z.ZodType>()

/** The schema of `{"<wrapper>": {...}}`, which gives the inside. */
export function wrappedBody<T>(wrapper: string, inside: z.ZodType<T>): z.ZodType<T> {
  return z.strictObject({ [wrapper]: inside }).transform(body => body[wrapper] as T)
}

/** The same around a schema that holds a `listOf`; other requests get in between the items. */
export function wrappedBodyWithLists<T>(wrapper: string, inside: z.ZodType<T>): z.ZodType<T> {
  const schema = wrappedBody(wrapper, inside)
  withLists.add(schema)
  return schema
}

/**
 * Reads a body with the schema of it.
 * @throws ApiError 400 that names every wrong or unknown attribute
 */
export function readBody<T>(schema: z.ZodType<T>, body: unknown): T | Promise<T> {
  if (body === undefined) throw badRequest('The request needs a JSON body.')
  if (!withLists.has(schema)) return outcomeOf(body, schema.safeParse(body))
  return schema.safeParseAsync(body).then(result => outcomeOf(body, result))
}

function outcomeOf<T>(body: unknown, result: z.ZodSafeParseResult<T>): T {
  if (result.success) return result.data
  throw badRequest(describeIssues(body, result.error.issues))
}

/** Items of lists that are read without a pause: some two milliseconds' work. */
const AT_A_TIME = 50
let readWithoutPause = 0

/**
 * A list of objects, read no further than it takes to fill an answer with what is wrong: a body has room for tens of thousands of empty
 * objects, and to describe them all would hold up every other request for seconds. For wrappedBodyWithLists.
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
        if (++readWithoutPause % AT_A_TIME === 0) await setImmediate()
        const result = await item.safeParseAsync(element)
        if (result.success) items.push(result.data)
        else {
          const { issues } = result.error
          for (const issue of issues) context.issues.push({ ...issue, path: [index, ...issue.path], input: element })
          wrong += issues.length
        }
        if (wrong > MOST_ISSUES) break
      }
      return items
    })
    .meta({
      type: 'array',
      // A getter, as only the API's description asks for it.
      get items() {
        const { $schema: _, ...form } = z.toJSONSchema(item, { io: 'input', unrepresentable: 'any' })
        return form
      },
    })
}

type Issue = z.core.$ZodIssue

export function describeIssues(body: unknown, issues: readonly Issue[]): string {
  const sentences = issues.slice(0, MOST_ISSUES).map(issue => describeIssue(body, issue))
  if (issues.length > MOST_ISSUES) sentences.push('and more')
  return sentences.join('; ')
}

function describeIssue(body: unknown, issue: Issue): string {
  if (issue.code === 'unrecognized_keys') {
    const argument = issue.path.length === 0 ? 'body' : nameOf(issue.path)
    const keys = issue.keys.slice(0, MOST_ISSUES).map(key => shorten(key))
    return `Unknown attribute${issue.keys.length > 1 ? 's' : ''} for argument ${argument}: ${keys.join(', ')}`
  }
  // Attributes of the one object asked about go by their own names, those of nested objects by their path.
  const name = nameOf(issue.path.length > 1 ? issue.path.slice(1) : issue.path) || 'body'
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

/** As Octavia shows values: null and what is missing are None. */
function displayed(value: unknown): string {
  if (value === undefined || value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  return typeof value === 'string' ? value : JSON.stringify(value)
}

const shorten = (text: string): string => (text.length > 200 ? `${text.slice(0, 200)}...` : text)
