import * as z from 'zod'
import { isRecord } from './is-record.js'
import { configurationSchema } from './schema.js'

/** One setting: its path in krater.yaml, and the environment variable that overrides it. */
export type Setting = {
  path: readonly string[]
  name: string
  variable: string
  secret: boolean
  /** A JSON value; undefined without a default. */
  default: unknown
  description: string
}

/** Every setting of the schema, in the schema's order. */
export const settings: readonly Setting[] = leavesOf(configurationSchema, [])

/** The setting at a path, or the one whose value the path leads into; undefined for a group. */
export function settingAbove(path: readonly PropertyKey[]): Setting | undefined {
  return settings.find(setting => setting.path.every((key, at) => key === path[at]))
}

/** The value at a path; undefined when there is none. */
export const valueAt = (values: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce<unknown>((node, key) => (isRecord(node) ? node[String(key)] : undefined), values)

/** Whether a file that holds the value is read as the same value. A setting that becomes an object is written as given. */
export const isPlain = (value: unknown): boolean =>
  ['string', 'number', 'boolean'].includes(typeof value) || (Array.isArray(value) && value.every(isPlain))

function leavesOf(schema: z.ZodType, path: readonly string[]): Setting[] {
  const inner = unwrap(schema)
  if (inner instanceof z.ZodObject) {
    return Object.entries(inner.shape).flatMap(([key, value]) => leavesOf(value as z.ZodType, [...path, key]))
  }
  return [
    {
      path,
      name: path.join('.'),
      variable: `KRATER_${path.join('_').toUpperCase()}`,
      // Database URLs hold passwords.
      secret: path[0] === 'database' || isSecret(schema),
      default: defaultOf(schema),
      description: descriptionOf(schema),
    },
  ]
}

/** Whether the schema, or one that it wraps, is marked with `meta({ secret: true })`. */
function isSecret(schema: z.ZodType): boolean {
  const inner = innerOf(schema)
  return schema.meta()?.secret === true || (inner !== null && isSecret(inner))
}

/** A wrapper's description takes precedence over that of its inner schema. */
function descriptionOf(schema: z.ZodType): string {
  const inner = innerOf(schema)
  return schema.description ?? (inner === null ? '' : descriptionOf(inner))
}

function defaultOf(schema: z.ZodType): unknown {
  if (schema instanceof z.ZodDefault) return schema.def.defaultValue
  const inner = innerOf(schema)
  return inner === null ? undefined : defaultOf(inner)
}

function unwrap(schema: z.ZodType): z.ZodType {
  const inner = innerOf(schema)
  return inner === null ? schema : unwrap(inner)
}

/** The inner schema of a wrapper that only adds a default or allows undefined or null; null for other schemas. */
function innerOf(schema: z.ZodType): z.ZodType | null {
  const isOptional = schema instanceof z.ZodOptional || schema instanceof z.ZodNullable
  const isWrapper = isOptional || schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault
  return isWrapper ? (schema.def.innerType as z.ZodType) : null
}
