import * as z from 'zod'
import { normaliseAddress, parseCidr } from '../addresses.js'
import { isUuid } from '../visibility.js'
import { invalidRequest } from './neutron-error.js'
import { isStorable, MAC_ADDRESS } from './select.js'

const quoted = (value: unknown) => (typeof value === 'string' ? `'${value}'` : JSON.stringify(value))

const string = (limit: number) =>
  z
    .string({ error: issue => `${quoted(issue.input)} is not a valid string` })
    .max(limit, { error: issue => `${quoted(issue.input)} exceeds maximum length of ${limit}` })
    .refine(isStorable, { error: 'the NUL character is not allowed' })

/** The attributes that several resources share, with Neutron's messages for bad values where it has any. */
export const attribute = {
  text: string(255),
  projectId: string(255).min(1, { error: 'must not be empty' }),
  id: z
    .string({ error: issue => `${quoted(issue.input)} is not a valid UUID` })
    .refine(isUuid, { error: issue => `${quoted(issue.input)} is not a valid UUID` })
    .transform(text => text.toLowerCase()),
  // Clients also send "true" and 1, and numbers as text.
  boolean: z
    .preprocess(
      value => BOOLEAN_WORDS.get(typeof value === 'string' ? value.toLowerCase() : value) ?? value,
      z.boolean({ error: issue => `${quoted(issue.input)} cannot be converted to boolean` }),
    )
    .meta({ type: 'boolean' }),
  integer: (min: number, max: number) =>
    z
      .preprocess(
        value => (typeof value === 'string' && /^-?\d{1,9}$/.test(value) ? Number(value) : value),
        z
          .int({ error: issue => `${quoted(issue.input)} is not an integer` })
          .min(min, { error: issue => `'${issue.input}' is too small - must be at least '${min}'` })
          .max(max, { error: issue => `'${issue.input}' is too large - must be no larger than '${max}'` }),
      )
      .meta({ type: 'integer', minimum: min, maximum: max }),
  address: z
    .string({ error: issue => `${quoted(issue.input)} is not a valid IP address` })
    .transform((text, context) => {
      const address = normaliseAddress(text)
      if (address !== null) return address
      context.addIssue({ code: 'custom', message: `'${text}' is not a valid IP address` })
      return z.NEVER
    }),
  macAddress: z
    .string({ error: issue => `${quoted(issue.input)} is not a valid MAC address` })
    .regex(MAC_ADDRESS, { error: issue => `${quoted(issue.input)} is not a valid MAC address` })
    // The lowest bit of the first byte marks a multicast address.
    .refine(text => Number.parseInt(text.slice(0, 2), 16) % 2 === 0 && !/^00(:00){5}$/.test(text), {
      error: issue => `${quoted(issue.input)} is not a permitted MAC address`,
    })
    .transform(text => text.toLowerCase()),
  /** A subnet in CIDR notation without host bits. */
  cidr: z.string({ error: 'not a valid IP subnet' }).transform((text, context) => {
    const cidr = parseCidr(text)
    const [base = ''] = text.split('/')
    const hint = cidr === null || cidr.text === text.toLowerCase() ? '' : `, '${cidr.text}' is recommended`
    // Refuses host bits. Compares values, since an IPv6 address has many spellings; 0177.0.0.1 and the like do not parse.
    if (cidr !== null && parseCidr(`${base}/${cidr.version === 4 ? 32 : 128}`)?.first === cidr.first) return cidr
    context.addIssue({ code: 'custom', message: `'${text}' isn't a recognized IP subnet cidr${hint}` })
    return z.NEVER
  }),
  /** A list of objects that this service does not support. */
  emptyList: z.array(z.unknown()).max(0, { error: 'not supported by this service; only [] is accepted' }),
} as const

const BOOLEAN_WORDS: ReadonlyMap<unknown, boolean> = new Map<unknown, boolean>([
  ['true', true],
  ['1', true],
  [1, true],
  ['false', false],
  ['0', false],
  [0, false],
])

/**
 * Unwraps the resource in `{ [singular]: ... }` or, in a bulk request, the list in `{ [plural]: [...] }`.
 * @throws NeutronError 400
 */
export function unwrap(body: unknown, singular: string, plural?: string): { items: unknown[]; bulk: boolean } {
  if (body === undefined) throw invalidRequest('Resource body required')
  const wrapper = z.record(z.string(), z.unknown()).safeParse(body)
  if (!wrapper.success || Array.isArray(body)) throw invalidRequest(`Unable to find '${singular}' in request body`)
  if (Object.hasOwn(wrapper.data, singular)) return { items: [wrapper.data[singular]], bulk: false }
  const list = plural !== undefined && Object.hasOwn(wrapper.data, plural) ? wrapper.data[plural] : undefined
  if (Array.isArray(list) && list.length > 0 && list.length <= MAX_BULK_OBJECTS) return { items: list, bulk: true }
  if (Array.isArray(list) && list.length > 0) {
    throw invalidRequest(`The request holds ${list.length} ${plural}; the maximum is ${MAX_BULK_OBJECTS}`)
  }
  throw invalidRequest(`Unable to find '${singular}' in request body`)
}

const MAX_BULK_OBJECTS = 100

/** Validates attributes. @throws NeutronError 400, in Neutron's wording, that names every invalid one */
export function parseAttributes<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const result = schema.safeParse(value, { reportInput: true })
  if (result.success) return result.data
  // One reason per attribute: a value of the wrong type breaks further rules.
  const first = new Map(result.error.issues.toReversed().map(issue => [issue.path.join('.'), issue]))
  throw invalidRequest([...first.values()].reverse().map(describeIssue).join(' '))
}

function describeIssue(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') {
    const prefix = issue.path.length === 0 ? '' : `Invalid input for ${issue.path.join('.')}. Reason: `
    return `${prefix}Unrecognized attribute(s) '${issue.keys.join(', ')}'`
  }
  if (issue.path.length === 0) return 'The request body must be a JSON object.'
  return `Invalid input for ${issue.path.join('.')}. Reason: ${reasonOf(issue)}.`
}

function reasonOf(issue: z.core.$ZodIssue): string {
  if (issue.code !== 'invalid_type' || !Object.hasOwn(KINDS, issue.expected)) return issue.message
  const kind = KINDS[issue.expected]!
  return issue.input === undefined ? `${kind} is required` : `${quoted(issue.input)} is not ${kind}`
}

const KINDS: Readonly<Record<string, string>> = { array: 'a list', object: 'an object' }

/** Checks that a create request has these attributes. @throws NeutronError 400 */
export function requireAttributes(value: unknown, names: readonly string[]): void {
  if (typeof value !== 'object' || value === null) return
  const absent = names.find(name => !Object.hasOwn(value, name))
  if (absent !== undefined) {
    throw invalidRequest(`Failed to parse request. Required attribute '${absent}' not specified`)
  }
}
