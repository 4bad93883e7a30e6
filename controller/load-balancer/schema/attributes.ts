import { z } from 'zod'
import { type Kind, MISSING, type Reading, type ValueType } from './values.js'

/** Whether requests may carry an attribute: never, only on create, or on create and update. */
export type Input = 'none' | 'create' | 'create-and-update'

/**
 * One attribute of a resource. This entry alone drives validation, default, database column, response key, filter, sort key, place in the
 * tree that providers render, and the description. `V` is its value after a create was read.
 */
export type Attribute<V = unknown, I extends Input = Input> = {
  /** What it is, in a line of the description. */
  about: string
  kind: Kind
  input: I
  type: ValueType<V> | null
  required: boolean
  /** The value when none, or null, is given. */
  default: V | null
  /** What an explicit null means: the default (as if not given on create, reset on update), a value of its own, or nothing on update. */
  null: 'default' | 'keep' | { value: V }
  /** SQL of the response value; '' stands for the column of the same name, null keeps the attribute out of responses. */
  sql: string | null
  /** Whether its column of the same name is written from requests. */
  stored: boolean
  /** Whether rules of the resource give it a value where the request gives none: then its column is never null and has no default. */
  completed: boolean
  /** How the tree of a load balancer holds it; null when providers have no use for it. */
  inTree: z.ZodType | null
  filterable: boolean
  /** Left out of responses when it is null. */
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

/** Stored, with a default, changeable. */
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

/** Stored, required, changeable, but not to null. */
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

/** Accepted on create, but not stored under its own name: parents, synonyms. In responses only when it has SQL. */
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

/** Only in responses. */
export function derived(
  kind: Kind,
  sql: string,
  about: string,
  options: { omittedWhenNull?: boolean; filterable?: boolean } = {},
): Attribute<never, 'none'> {
  return { ...plain, about, kind, type: null, input: 'none', default: null, stored: false, sql, ...options }
}

/** The same attribute, to which rules of the resource give a value where the request gives none. */
export const completed = <V, I extends Input>(attribute: Attribute<V, I>): Completed<V, I> => ({
  ...attribute,
  completed: true,
})

type Completed<V, I extends Input> = Attribute<V, I> & { completed: true }

/** An attribute that the tree holds, as a `T`, under its name in camel case. */
export type Rendered<T, A extends Attribute = Attribute> = Omit<A, 'inTree'> & { inTree: z.ZodType<T> }

/**
 * The same attribute, in the tree that providers render.
 * @param form reads the JSON of its column, when the tree holds it in another form than it is stored
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

/** What a valid create body holds, defaults filled in. */
export type Created<A extends Attributes> = {
  [K in keyof A as A[K] extends Attribute<infer _, infer I>
    ? I extends 'none'
      ? never
      : K
    : never]: A[K] extends Attribute<infer V, infer _> ? V : never
}

/** What a valid update body holds: only what was given, nulls resolved. */
export type Updated<A extends Attributes> = {
  [K in keyof A as A[K] extends Attribute<infer _, infer I>
    ? I extends 'create-and-update'
      ? K
      : never
    : never]?: A[K] extends Attribute<infer V, infer _> ? V : never
}

/** The zod shape of a create body, for use in other shapes too; `except` names what a parent gives. */
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

/** @param whenNull given: what null means; not given: null is refused */
function reader(attribute: Attribute, ...whenNull: [] | [unknown]) {
  const type = attribute.type
  if (type === null) throw new Error('An attribute that requests may carry needs a type')
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
