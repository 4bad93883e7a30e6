import * as z from 'zod'
import type { Fragment } from '../../database/sql.js'
import { type Attribute, type Attributes, type Created, createShape, type Updated, updateShape } from './attributes.js'
import { canonicalUuid, type Kind } from './values.js'

/** `narrow`: an additional condition that lets PostgreSQL use an index. */
export type Filter = { kind: Kind; sql: string; narrow?: (value: string) => Fragment; about?: string }

/** One kind of object, as routes, lists and writes need it. */
export type Resource<A extends Attributes = Attributes> = {
  /** Name in messages: `Health Monitor`. */
  label: string
  /** Keys in bodies: of one object, of a list, and of its page links. */
  singular: string
  plural: string
  links: string
  table: string
  /** SQL of FROM: the table as `o`, and the load balancer above it, if any, as `lb`. */
  source: string
  /** Column with the id of the parent, unless that is the load balancer. */
  parent: string | null
  /** Column that identifies a row in paths and markers. */
  key: { column: 'id' | 'name' | 'project_id'; kind: 'uuid' | 'text' }
  /**
   * SQL of the project that owns a row; null if rows have no owner, so that the caller's own project decides
   * its rights.
   */
  project: string | null
  attributes: A
  /** Filters in addition to the scalar response attributes. */
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

/** The key as the database stores it, or null when no row can have it. */
export function canonicalKey({ key }: Resource, text: string): string | null {
  if (key.kind === 'uuid') return canonicalUuid(text)
  return text === '' || text.includes('\0') ? null : text
}

/** SQL of a response attribute. */
export function sqlOf(name: string, attribute: Attribute): string | null {
  return attribute.sql === '' ? `o.${name}` : attribute.sql
}

/** Strict schema of a create body without nested objects. */
export function createSchema<A extends Attributes>({ attributes }: Resource<A>): z.ZodType<Created<A>> {
  return z.strictObject(createShape(attributes)) as unknown as z.ZodType<Created<A>>
}

export function updateSchema<A extends Attributes>({ attributes }: Resource<A>): z.ZodType<Updated<A>> {
  return z.strictObject(updateShape(attributes)) as unknown as z.ZodType<Updated<A>>
}

/** Columns that requests write, and the parent's id. */
export function columnNames({ attributes, parent }: Resource): string[] {
  const stored = Object.entries(attributes).filter(([, attribute]) => attribute.stored && attribute.sql === '')
  return [...stored.map(([name]) => name), ...(parent === null ? [] : [parent])]
}

/** Columns with the values of a create or update body. */
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
