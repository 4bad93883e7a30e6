import { z } from 'zod'
import { normaliseAddress } from '../addresses.js'
import { isUuid } from '../visibility.js'
import { invalidRequest } from './neutron-error.js'
import { isStorable, MAC_ADDRESS } from './select.js'

const shown = (value: unknown) => (typeof value === 'string' ? `'${value}'` : JSON.stringify(value))

const string = (limit: number) =>
  z
    .string({ error: issue => `${shown(issue.input)} is not a valid string` })
    .max(limit, { error: issue => `${shown(issue.input)} exceeds maximum length of ${limit}` })
    .refine(isStorable, { error: 'the NUL character is not allowed' })

/** The attributes that several resources share. Where a type has one of Neutron's sentences for bad values, it is said here. */
export const attribute = {
  text: string(255),
  projectId: string(255).min(1, { error: 'must not be empty' }),
  id: z
    .string({ error: issue => `${shown(issue.input)} is not a valid UUID` })
    .refine(isUuid, { error: issue => `${shown(issue.input)} is not a valid UUID` })
    .transform(text => text.toLowerCase()),
  // Clients send "true" and 1 as well, and numbers as text.
  boolean: z
    .preprocess(
      value => BOOLEAN_WORDS.get(typeof value === 'string' ? value.toLowerCase() : value) ?? value,
      z.boolean({ error: issue => `${shown(issue.input)} cannot be converted to boolean` }),
    )
    .meta({ type: 'boolean' }),
  integer: (least: number, most: number) =>
    z
      .preprocess(
        value => (typeof value === 'string' && /^-?\d{1,9}$/.test(value) ? Number(value) : value),
        z
          .int({ error: issue => `${shown(issue.input)} is not an integer` })
          .min(least, { error: issue => `'${issue.input}' is too small - must be at least '${least}'` })
          .max(most, { error: issue => `'${issue.input}' is too large - must be no larger than '${most}'` }),
      )
      .meta({ type: 'integer', minimum: least, maximum: most }),
  address: z
    .string({ error: issue => `${shown(issue.input)} is not a valid IP address` })
    .transform((text, context) => {
      const address = normaliseAddress(text)
      if (address !== null) return address
      context.addIssue({ code: 'custom', message: `'${text}' is not a valid IP address` })
      return z.NEVER
    }),
  macAddress: z
    .string({ error: issue => `${shown(issue.input)} is not a valid MAC address` })
    .regex(MAC_ADDRESS, { error: issue => `${shown(issue.input)} is not a valid MAC address` })
    // The lowest bit of the first byte marks group addresses.
    .refine(text => Number.parseInt(text.slice(0, 2), 16) % 2 === 0 && !/^00(:00){5}$/.test(text), {
      error: issue => `${shown(issue.input)} is not a permitted MAC address`,
    })
    .transform(text => text.toLowerCase()),
  /** A list that this service has nothing to put into. */
  emptyList: z.array(z.unknown()).max(0, { error: 'this service supports none, so only [] is accepted' }),
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
 * Takes the resource out of `{ [singular]: ... }` or, for a bulk request, the list out of `{ [plural]: [...] }`.
 * @throws NeutronError 400
 */
export function unwrap(body: unknown, singular: string, plural?: string): { items: unknown[]; bulk: boolean } {
  if (body === undefined) throw invalidRequest('Resource body required')
  const wrapper = z.record(z.string(), z.unknown()).safeParse(body)
  if (!wrapper.success || Array.isArray(body)) throw invalidRequest(`Unable to find '${singular}' in request body`)
  if (Object.hasOwn(wrapper.data, singular)) return { items: [wrapper.data[singular]], bulk: false }
  const list = plural !== undefined && Object.hasOwn(wrapper.data, plural) ? wrapper.data[plural] : undefined
  if (Array.isArray(list) && list.length > 0 && list.length <= MOST_IN_BULK) return { items: list, bulk: true }
  if (Array.isArray(list) && list.length > 0) throw invalidRequest(`At most ${MOST_IN_BULK} objects in one request`)
  throw invalidRequest(`Unable to find '${singular}' in request body`)
}

const MOST_IN_BULK = 100

/** Checks the attributes of a resource and names every one that is wrong. @throws NeutronError 400 in Neutron's words */
export function parseAttributes<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  throw invalidRequest([...new Set(result.error.issues.map(sentenceOf))].join(' '))
}

function sentenceOf(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') {
    const prefix = issue.path.length === 0 ? '' : `Invalid input for ${issue.path.join('.')}. Reason: `
    return `${prefix}Unrecognized attribute(s) '${issue.keys.join(', ')}'`
  }
  if (issue.path.length === 0) return 'The request body must hold an object.'
  return `Invalid input for ${issue.path.join('.')}. Reason: ${issue.message}.`
}

/** Attributes that a create request must have. @throws NeutronError 400 */
export function requireAttributes(value: unknown, names: readonly string[]): void {
  if (typeof value !== 'object' || value === null) return
  const absent = names.find(name => !Object.hasOwn(value, name))
  if (absent !== undefined) {
    throw invalidRequest(`Failed to parse request. Required attribute '${absent}' not specified`)
  }
}
