import * as z from 'zod'
import { type Kind, MISSING, type Reading, type ValueType } from './values.js'

/** When a request may set an attribute: never, on create only, or on create and update. */
export type Input = 'none' | 'create' | 'create-and-update'

/**
 * One attribute of a resource. This entry alone drives validation, default, database column, response key,
 * filter, sort key, place in the tree that providers render, and API description. `V` is the value that a
 * parsed create body holds.
 */
export type Attribute<V = unknown, I extends Input = Input> = {
  /** One line for the API description. */
  about: string
  kind: Kind
  input: I
  type: ValueType<V> | null
  required: boolean
  /** Value if none or null is given. */
  default: V | null
  /**
   * Meaning of an explicit null: the default (also on update), a specific value, or `keep`: an update leaves
   * the stored value.
   */
  null: 'default' | 'keep' | { value: V }
  /** SQL of the response value: '' for the column of the same name, null for attributes that responses omit. */
  sql: string | null
  /** Whether requests write the column of the same name. */
  stored: boolean
  /**
   * Whether the resource's rules set a value that the request leaves out. Its column is then never null and has
   * no default.
   */
  completed: boolean
  /** Form of the value in the load balancer tree; null if providers do not need it. */
  inTree: z.ZodType | null
  filterable: boolean
  /** Whether responses omit it when null. */
  omittedWhenNull: boolean
}

export type Attributes = Readonly<Record<string, Attribute>>

type Options<V> = Partial<Pick<Attribute<V>, 'null' | 'sql' | 'filterable'>>

const plain = {
  required: false,
  stored: true,
  completed: false,
  inTree: null,
  sql: '',
  null: 'default',
  filterable: true,
  omittedWhenNull: false,
} as const

/** Stored, with a default, mutable. */
export function settable<T, D extends T | null>(
  type: ValueType<T>,
  byDefault: D,
  about: string,
  options: Options<T | D> = {},
): Attribute<T | D, 'create-and-update'> {
  return {
    ...plain,
    about,
    kind: type.kind,
    type: type as ValueType<T | D>,
    input: 'create-and-update',
    default: byDefault,
    ...options,
  }
}

/** Stored, required, mutable, but never null. */
export function settableRequired<T>(
  type: ValueType<T>,
  about: string,
  options: Options<T> = {},
): Attribute<T, 'create-and-update'> {
  return {
    ...plain,
    about,
    kind: type.kind,
    type,
    input: 'create-and-update',
    required: true,
    default: null,
    ...options,
  }
}

/** Stored, with a default, immutable. */
export function fixed<T, D extends T | null>(
  type: ValueType<T>,
  byDefault: D,
  about: string,
  options: Options<T | D> = {},
): Attribute<T | D, 'create'> {
  return { ...settable(type, byDefault, about, options), input: 'create' }
}

/** Stored, required, immutable. */
export function fixedRequired<T>(type: ValueType<T>, about: string, options: Options<T> = {}): Attribute<T, 'create'> {
  return { ...settableRequired(type, about, options), input: 'create' }
}

/** Accepted on create, but not stored under its own name: parents, synonyms. Responses show it only if it has SQL. */
export function given<T, D extends T | null>(
  type: ValueType<T>,
  byDefault: D,
  about: string,
  options: Options<T | D> = {},
): Attribute<T | D, 'create'> {
  return { ...fixed(type, byDefault, about, { sql: null, ...options }), stored: false }
}

export function givenRequired<T>(type: ValueType<T>, about: string, options: Options<T> = {}): Attribute<T, 'create'> {
  return { ...fixedRequired(type, about, { sql: null, ...options }), stored: false }
}

/** In responses only. */
export function derived(
  kind: Kind,
  sql: string,
  about: string,
  options: { omittedWhenNull?: boolean; filterable?: boolean } = {},
): Attribute<never, 'none'> {
  return { ...plain, about, kind, type: null, input: 'none', default: null, stored: false, sql, ...options }
}

/** The same attribute, with a value set by the resource's rules if the request gives none. */
export const completed = <V, I extends Input>(attribute: Attribute<V, I>): Completed<V, I> => ({
  ...attribute,
  completed: true,
})

type Completed<V, I extends Input> = Attribute<V, I> & { completed: true }

/** An attribute that the tree holds as a `T`, under its name in camel case. */
export type Rendered<T, A extends Attribute = Attribute> = Omit<A, 'inTree'> & { inTree: z.ZodType<T> }

/**
 * The same attribute, included in the tree that providers render.
 * @param form parses the JSON of its column, if the tree holds it in a different form
 */
export function rendered<V, I extends Input>(attribute: Completed<V, I>): Rendered<NonNullable<V>, Completed<V, I>>
export function rendered<V, I extends Input>(attribute: Attribute<V, I>): Rendered<V, Attribute<V, I>>
export function rendered<V, I extends Input, T>(
  attribute: Attribute<V, I>,
  form: z.ZodType<T>,
): Rendered<T, Attribute<V, I>>
export function rendered(attribute: Attribute, form?: z.ZodType): Rendered<unknown> {
  if (attribute.type === null) throw new Error('Only stored attributes are rendered')
  const stored = isNullable(attribute) ? attribute.type.form.nullable() : attribute.type.form
  return { ...attribute, inTree: form ?? stored }
}

/** Whether the column of an attribute may be null. */
export const isNullable = ({ required, completed, default: byDefault }: Attribute): boolean =>
  !required && !completed && byDefault === null

/** A valid create body with defaults filled in. */
export type Created<A extends Attributes> = {
  [K in keyof A as A[K] extends Attribute<infer _, infer I>
    ? I extends 'none'
      ? never
      : K
    : never]: A[K] extends Attribute<infer V, infer _> ? V : never
}

/** A valid update body: only the given attributes, with nulls resolved. */
export type Updated<A extends Attributes> = {
  [K in keyof A as A[K] extends Attribute<infer _, infer I>
    ? I extends 'create-and-update'
      ? K
      : never
    : never]?: A[K] extends Attribute<infer V, infer _> ? V : never
}

/** Zod shape of a create body, also for nested objects. `except` lists attributes that the parent sets. */
export function createShape<A extends Attributes>(
  attributes: A,
  except: readonly (keyof A)[] = [],
): Record<string, z.ZodType> {
  const shape: Record<string, z.ZodType> = {}
  for (const [name, attribute] of Object.entries(attributes)) {
    if (attribute.input !== 'none' && !except.includes(name)) shape[name] = onCreate(attribute)
  }
  return shape
}

export function updateShape(attributes: Attributes): Record<string, z.ZodType> {
  const shape: Record<string, z.ZodType> = {}
  for (const [name, attribute] of Object.entries(attributes)) {
    if (attribute.input === 'create-and-update') shape[name] = onUpdate(attribute)
  }
  return shape
}

function onCreate(attribute: Attribute): z.ZodType {
  const whenNull = typeof attribute.null === 'object' ? attribute.null.value : attribute.default
  if (!attribute.required) return reader(attribute, whenNull).default(attribute.default)
  return typeof attribute.null === 'object' ? reader(attribute, whenNull) : reader(attribute)
}

function onUpdate(attribute: Attribute): z.ZodType {
  if (attribute.required) return reader(attribute).optional()
  if (attribute.null === 'keep') return reader(attribute, undefined).optional()
  return reader(attribute, typeof attribute.null === 'object' ? attribute.null.value : attribute.default).optional()
}

/** @param whenNull the value that null stands for; without it, null is invalid */
function reader(attribute: Attribute, ...whenNull: [] | [unknown]) {
  const type = attribute.type
  if (type === null) throw new Error('An attribute that requests may set needs a type')
  return z
    .unknown()
    .transform((value, context): unknown => {
      if (value === null && whenNull.length === 1) return whenNull[0]
      const reading: Reading<unknown> =
        value === undefined || value === null ? { ok: false, reason: MISSING } : type.read(value)
      if (reading.ok) return reading.value
      const { path = [], unknown } = reading
      if (unknown === undefined) context.addIssue({ code: 'custom', message: reading.reason, path })
      else context.addIssue({ code: 'unrecognized_keys', keys: unknown, path })
      return z.NEVER
    })
    .meta(type.jsonSchema)
}
