import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import * as z from 'zod'

/** How SQL compares and sorts a value. `json` values (lists, objects) support neither filters nor sorting. */
export type Kind = 'text' | 'uuid' | 'integer' | 'number' | 'boolean' | 'time' | 'json'

/** `unknown` lists unknown keys of the object at `path`. */
export type Reading<T> =
  | { ok: true; value: T }
  | { ok: false; reason: string; path?: (string | number)[]; unknown?: string[] }

export const MISSING = 'Mandatory field missing.'

/**
 * The type of an attribute value. Reasons use Octavia's wording.
 *
 * `read` is a plain function, because zod is slower and a body may have thousands of members. Microseconds for
 * one port number, over 100,000 runs on one core: 80 takes 0.11 here and 0.47 in zod, '80' takes 0.06 and 1.74,
 * and 'x', which is invalid, 0.29 and 21. Objects and lists of attributes use zod (attributes.ts).
 */
export type ValueType<T> = {
  kind: Kind
  /** SQL type of its column. */
  column: string
  /** Checks the form of a stored value, but not its limits, which may differ in the version that stored it. */
  form: z.ZodType<T>
  /** For the API description. */
  jsonSchema: Readonly<Record<string, unknown>>
  /** Parses the JSON value of a request. */
  read: (value: unknown) => Reading<T>
}

const TEXT = { kind: 'text', column: 'text', form: z.string() } as const
const INTEGER = { kind: 'integer', column: 'integer', form: z.number() } as const

const accepted = <T>(value: T): Reading<T> => ({ ok: true, value })
const refused = (reason: string): Reading<never> => ({ ok: false, reason })

/** A string without NUL, which PostgreSQL cannot store. Lengths count characters. */
export function text(
  maximum: number,
  { minimum = 0, pattern, reason = 'Value does not match the pattern' }: TextRules = {},
) {
  return valueType<string>(TEXT, { type: 'string', minLength: minimum, maxLength: maximum }, value => {
    if (typeof value !== 'string') return refused('Value should be a string')
    if (value.includes('\0')) return refused('Value should not contain a NUL character')
    // A character has at most two units. Splitting megabytes into characters takes long.
    const isNear = value.length > maximum && value.length <= 2 * maximum
    const length = isNear ? [...value].length : value.length
    if (length > maximum) return refused(`Value should have a maximum character requirement of ${maximum}`)
    if (length < minimum) return refused(`Value should have a minimum character requirement of ${minimum}`)
    if (pattern !== undefined && !pattern.test(value)) return refused(reason)
    return accepted(value)
  })
}

/** `pattern`: a regular expression or another test. */
type TextRules = { minimum?: number; pattern?: { test: (text: string) => boolean }; reason?: string }

/** A JSON integer, or a string with one. */
export function integer(minimum: number, maximum = 2147483647) {
  return valueType<number>(INTEGER, { type: 'integer', minimum, maximum }, value => {
    const number = typeof value === 'string' && /^\s*[+-]?\d{1,20}\s*$/.test(value) ? Number(value) : value
    if (typeof number !== 'number' || !Number.isInteger(number)) return refused('Value should be an integer')
    if (number < minimum) return refused(`Value should be greater or equal to ${minimum}`)
    if (number > maximum) return refused(`Value should be lower or equal to ${maximum}`)
    return accepted(number === 0 ? 0 : number)
  })
}

/** One of the given numbers with one decimal, such as HTTP versions, or a string with one. */
export function oneNumberOf(numbers: readonly number[]) {
  const stored = { kind: 'number', column: 'numeric(2,1)', form: z.number() } as const
  return valueType<number>(stored, { type: 'number', enum: numbers }, value => {
    const number = typeof value === 'string' && /^\s*\d(\.\d{0,20})?\s*$/.test(value) ? Number(value) : value
    return typeof number === 'number' && numbers.includes(number)
      ? accepted(number)
      : refused(`Value should be one of: ${numbers.map(number => number.toFixed(1)).join(', ')}`)
  })
}

const TRUTHS = new Map<unknown, boolean>([
  ...[true, 1, '1', 'true', 't', 'yes', 'y', 'on'].map(form => [form, true] as const),
  ...[false, 0, '0', 'false', 'f', 'no', 'n', 'off'].map(form => [form, false] as const),
])

const BOOLEAN = { kind: 'boolean', column: 'boolean', form: z.boolean() } as const

export const boolean = valueType<boolean>(BOOLEAN, { type: 'boolean' }, value => {
  const truth = TRUTHS.get(typeof value === 'string' ? value.trim().toLowerCase() : value)
  return truth === undefined ? refused('Value should be a boolean') : accepted(truth)
})

/** Exact and case-sensitive. */
export function oneOf<const T extends string>(
  choices: readonly T[],
  reason = `Value should be one of: ${choices.join(', ')}`,
) {
  const stored = { kind: 'text', column: 'text', form: z.enum(choices) } as const
  return valueType<T>(stored, { type: 'string', enum: choices }, value => {
    const choice = choices.find(choice => choice === value)
    return choice === undefined ? refused(reason) : accepted(choice)
  })
}

/** Canonical form of a UUID in any form that parsers accept (with or without dashes, braces, urn:uuid:), or null. */
export function canonicalUuid(value: unknown): string | null {
  if (typeof value !== 'string' || value.length > 64) return null
  const hex = value
    .replace('urn:', '')
    .replace('uuid:', '')
    .replace(/^\{+|\}+$/g, '')
    .replaceAll('-', '')
    .toLowerCase()
  if (!/^[0-9a-f]{32}$/.test(hex)) return null
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

const UUID = { kind: 'uuid', column: 'uuid', form: z.string() } as const

export const uuid = valueType<string>(UUID, { type: 'string', format: 'uuid' }, value => {
  const id = canonicalUuid(value)
  return id === null ? refused('Value should be UUID format') : accepted(id)
})

/** The deprecated form `::192.0.2.1`, which some programs parse as `::ffff:192.0.2.1`. */
const IPV4_COMPATIBLE = /^::\d+\./

const ipVersionOf = (text: string): number => (text.includes('%') || IPV4_COMPATIBLE.test(text) ? 0 : isIP(text))

/** Stored as given. Rejects zone identifiers, and forms that programs parse differently. */
export const ipAddress = valueType<string>(
  TEXT,
  { type: 'string', anyOf: [{ format: 'ipv4' }, { format: 'ipv6' }] },
  value =>
    typeof value === 'string' && ipVersionOf(value) !== 0
      ? accepted(value)
      : refused('Value should be IPv4 or IPv6 format'),
)

/** An IPv4 or IPv6 address of leading ones followed by zeros. */
export const netmask = valueType<string>(TEXT, ipAddress.jsonSchema, value => {
  const reading = ipAddress.read(value)
  if (!reading.ok) return reading
  return ipaddr.parse(reading.value).prefixLengthFromSubnetMask() === null
    ? refused('Value should be a netmask')
    : reading
})

/** Longer than any network in CIDR form. */
const MAX_CIDR = 64

/** Host bits are cleared. */
export const cidr = valueType<string>(TEXT, { type: 'string', format: 'cidr' }, value => {
  const isShort = typeof value === 'string' && value.length <= MAX_CIDR
  const [address = '', prefix, ...rest] = isShort ? value.split('/') : []
  const version = ipVersionOf(address)
  const bits = version === 4 ? 32 : 128
  const length = prefix === undefined ? bits : /^\d{1,3}$/.test(prefix) ? Number(prefix) : -1
  if (version === 0 || rest.length > 0 || length < 0 || length > bits) {
    return refused('Value should be IPv4 or IPv6 CIDR format')
  }
  const network =
    version === 4
      ? ipaddr.IPv4.networkAddressFromCIDR(`${address}/${length}`)
      : ipaddr.IPv6.networkAddressFromCIDR(`${address}/${length}`)
  return accepted(`${network.toString()}/${length}`)
})

/** Items of a list, unless it says otherwise: one object must not grow to the size that a tree of thousands may have. */
const MAX_ITEMS = 1000

export function listOf<T>(item: ValueType<T>, maxItems = MAX_ITEMS) {
  const column = item.column === 'jsonb' ? 'jsonb' : `${item.column}[]`
  return valueType<T[]>(
    { kind: 'json', column, form: z.array(item.form) },
    { type: 'array', items: item.jsonSchema, maxItems },
    value => {
      if (!Array.isArray(value)) return refused('Value should be a list')
      if (value.length > maxItems) return refused(`Value should be a list of at most ${maxItems} items`)
      const items: T[] = []
      for (const [index, element] of value.entries()) {
        const reading = item.read(element)
        if (!reading.ok) return { ...reading, path: [index, ...(reading.path ?? [])] }
        items.push(reading.value)
      }
      return accepted(items)
    },
  )
}

export function nonEmptyListOf<T>(item: ValueType<T>) {
  const list = listOf(item)
  return valueType<T[]>(list, { ...list.jsonSchema, minItems: 1 }, value =>
    Array.isArray(value) && value.length === 0 ? refused('Value should not be an empty list') : list.read(value),
  )
}

/** A list without duplicates; repeated values are dropped. */
export function setOf(item: ValueType<string>, maxItems = MAX_ITEMS) {
  const list = listOf(item, maxItems)
  return valueType<string[]>(list, list.jsonSchema, value => {
    const reading = list.read(value)
    return reading.ok ? accepted([...new Set(reading.value)]) : reading
  })
}

export const tags = setOf(text(255), 256)

/** A JSON object whose values have one type. The resource's rules check its keys. */
export function mapOf<T>(item: ValueType<T>) {
  return valueType<Readonly<Record<string, T>>>(
    { kind: 'json', column: 'jsonb', form: z.record(z.string(), item.form) },
    { type: 'object', additionalProperties: item.jsonSchema },
    value => {
      if (!isObject(value)) return refused('Value should be an object')
      const entries: [string, T][] = []
      for (const [key, element] of Object.entries(value)) {
        const reading = item.read(element)
        if (!reading.ok) return { ...reading, path: [key, ...(reading.path ?? [])] }
        if (key.includes('\0')) return refused('A key should not contain a NUL character')
        entries.push([key, reading.value])
      }
      return accepted(Object.fromEntries(entries))
    },
  )
}

/** The parsed form of a record. */
export type RecordOf<T extends Readonly<Record<string, ValueType<unknown>>>, R extends keyof T = never> = {
  [K in keyof T]: T[K] extends ValueType<infer V> ? (K extends R ? V : V | null) : never
}

/** An object with known keys, some of them required. Missing keys read as null. */
export function record<
  const T extends Readonly<Record<string, ValueType<unknown>>>,
  const R extends keyof T & string = never,
>(keys: T, required: readonly R[] = []) {
  const isRequired = (key: string) => required.some(name => name === key)
  const properties = Object.fromEntries(Object.entries(keys).map(([key, type]) => [key, type.jsonSchema]))
  const jsonSchema = { type: 'object', properties, required, additionalProperties: false }
  const shape = Object.entries(keys).map(([key, { form }]) => [
    key,
    isRequired(key) ? form : form.nullish().transform(value => value ?? null),
  ])
  const form = z.object(Object.fromEntries(shape)) as unknown as z.ZodType<RecordOf<T, R>>
  return valueType<RecordOf<T, R>>({ kind: 'json', column: 'jsonb', form }, jsonSchema, value => {
    if (!isObject(value)) return refused('Value should be an object')
    const unknown = Object.keys(value).filter(key => !Object.hasOwn(keys, key))
    if (unknown.length > 0) return { ok: false, reason: 'Unknown attribute', unknown }
    const result: Record<string, unknown> = {}
    for (const [key, type] of Object.entries(keys)) {
      const given = Object.hasOwn(value, key) ? value[key] : null
      if (given === null) {
        if (isRequired(key)) return { ok: false, reason: MISSING, path: [key] }
        result[key] = null
        continue
      }
      const reading = type.read(given)
      if (!reading.ok) return { ...reading, path: [key, ...(reading.path ?? [])] }
      result[key] = reading.value
    }
    return accepted(result as RecordOf<T, R>)
  })
}

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The same type with a line for the API description, for a key of a record. */
export const described = <T>(type: ValueType<T>, description: string): ValueType<T> => ({
  ...type,
  jsonSchema: { ...type.jsonSchema, description },
})

function valueType<T>(
  { kind, column, form }: Pick<ValueType<T>, 'kind' | 'column' | 'form'>,
  jsonSchema: ValueType<T>['jsonSchema'],
  read: ValueType<T>['read'],
): ValueType<T> {
  return { kind, column, form, jsonSchema, read }
}
