import { z } from 'zod'
import type { Fragment } from '../../database/sql.js'
import { type Attribute, type Attributes, type Created, createShape, type Updated, updateShape } from './attributes.js'
import { canonicalUuid, type Kind } from './values.js'

/** `narrow`: a further condition for an index to begin with. */
export type Filter = { kind: Kind; sql: string; narrow?: (value: string) => Fragment; about?: string }

/** What the routes, lists and writes need to know of one kind of object. */
export type Resource<A extends Attributes = Attributes> = {
  /** Name in messages: `Health Monitor`. */
  label: string
  /** Key of one object, of a list, and of the links between its pages, in bodies. */
  singular: string
  plural: string
  links: string
  table: string
  /** SQL after FROM: the table under the alias `o`, and its load balancer under `lb` when there is one above it. */
  source: string
  /** The column that names the object above, when that is not the load balancer itself. */
  parent: string | null
  /** Column that paths and markers name a row by. */
  key: { column: 'id' | 'name' | 'project_id'; kind: 'uuid' | 'text' }
  /** SQL of the project that owns a row; null when rows belong to nobody, and the caller's own project decides what it may do. */
  project: string | null
  attributes: A
  /** Filters beyond the scalar response attributes. */
  filters: Readonly<Record<string, Filter>>
  tagged: boolean
}

export function defineResource<A extends Attributes>(
  resource: Omit<Resource<A>, 'links' | 'parent' | 'key' | 'project' | 'filters' | 'tagged'> & Partial<Resource<A>>,
): Resource<A> {
  return {
    links: `${resource.plural}_links`,
    parent: null,
    key: { column: 'id', kind: 'uuid' },
    project: 'o.project_id',
    filters: {},
    tagged: true,
    ...resource,
  }
}

/** The key of a row as the database has it, or null when a text names no row. */
export function canonicalKey({ key }: Resource, text: string): string | null {
  if (key.kind === 'uuid') return canonicalUuid(text)
  return text === '' || text.includes('\0') ? null : text
}

/** SQL of a response attribute. */
export function sqlOf(name: string, attribute: Attribute): string | null {
  return attribute.sql === '' ? `o.${name}` : attribute.sql
}

/** A strict schema of a create body without nested objects. */
export function createSchema<A extends Attributes>({ attributes }: Resource<A>): z.ZodType<Created<A>> {
  return z.strictObject(createShape(attributes)) as unknown as z.ZodType<Created<A>>
}

export function updateSchema<A extends Attributes>({ attributes }: Resource<A>): z.ZodType<Updated<A>> {
  return z.strictObject(updateShape(attributes)) as unknown as z.ZodType<Updated<A>>
}

/** The columns that requests write, and the parent's. */
export function columnNames({ attributes, parent }: Resource): string[] {
  const stored = Object.entries(attributes).filter(([, attribute]) => attribute.stored && attribute.sql === '')
  return [...stored.map(([name]) => name), ...(parent === null ? [] : [parent])]
}

/** The columns that a create or update body gives. */
export function columnsOf(
  { attributes }: Resource,
  values: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const columns: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(values)) {
    const attribute = attributes[name]
    if (attribute?.stored === true && attribute.sql === '' && value !== undefined) columns[name] = value
  }
  return columns
}
