import type { Schema } from '../schema.js'
import { anchorOf, code, escapeHtml } from './html.js'

export type Components = Readonly<Record<string, Readonly<Record<string, Schema>>>>

/** Shows schemas. One object of attributes is shown once; wherever it occurs again, a link leads there. */
export class SchemaWriter {
  readonly #components: Components
  /** Names of schemas that the list of objects shows. */
  readonly #listed: ReadonlySet<string>
  /** An object's attributes as JSON -> the anchor where they are shown. */
  readonly #shown = new Map<string, string>()

  constructor(components: Components, listed: ReadonlySet<string>) {
    this.#components = components
    this.#listed = listed
  }

  resolve(value: unknown): Schema {
    const schema: Schema = Object(value)
    const [kind = '', name = ''] = referenceOf(schema)
    return kind === '' ? schema : Object(this.#components[kind]?.[name])
  }

  /** The attributes of an object, or of the objects in a list; '' when there are none. */
  attributes(given: unknown): string {
    const [kind, name = ''] = referenceOf(Object(given))
    if (kind === 'schemas' && this.#listed.has(name))
      return `<p><a href="#object-${anchorOf(name)}">${code(name)}</a></p>`
    const inner = this.#objectIn(given)
    if (inner === undefined) return ''
    if (inner.items !== undefined) return this.attributes(inner.items)
    const key = JSON.stringify(inner)
    const known = this.#shown.get(key)
    if (known !== undefined) return `<p><a href="#${known}">The same attributes as before</a></p>`
    // A link to a few attributes would be longer than the attributes.
    if (key.length < 300) return this.#list(inner)
    const anchor = `attributes-${this.#shown.size + 1}`
    this.#shown.set(key, anchor)
    return `<div id="${anchor}">${this.#list(inner)}</div>`
  }

  #list(object: Schema): string {
    const required = Array.isArray(object.required) ? object.required : []
    const properties = Object.entries(Object(object.properties) as Record<string, unknown>)
    const [only] = properties
    if (only !== undefined && properties.length === 1) {
      const inside = this.attributes(only[1])
      if (inside !== '') return `<p>${code(only[0])} contains:</p>${inside}`
    }
    const rows = properties.map(([name, property]) => {
      const form = this.resolve(property)
      const inside = this.attributes(property)
      const more = inside.startsWith('<p>') || inside === '' ? inside : folded(`Attributes of ${name}`, inside)
      const about = escapeHtml(String(form.description ?? ''))
      const type = `${this.typeOf(form)}${required.includes(name) ? ', required' : ''}`
      return `<dt>${code(name)} <i>${escapeHtml(type)}</i>${about + more === '' ? '' : `<dd>${about}${more}`}`
    })
    return `<dl>${rows.join('')}</dl>`
  }

  /** The first object or list among the alternatives of a schema. */
  #objectIn(given: unknown): Schema | undefined {
    const schema = this.resolve(given)
    const choices = Array.isArray(schema.anyOf) ? schema.anyOf.map(choice => this.resolve(choice)) : []
    return [schema, ...choices].find(form => form.properties !== undefined || form.items !== undefined)
  }

  /** `integer 1..65535, default 1`. */
  typeOf(schema: Schema): string {
    const fallback = schema.default === undefined ? '' : `default ${JSON.stringify(schema.default)}`
    if (Array.isArray(schema.anyOf)) {
      const types = schema.anyOf.map(choice => this.typeOf(this.resolve(choice)))
      return [[...new Set(types)].join(' or '), fallback].filter(part => part !== '').join(', ')
    }
    const choices = Array.isArray(schema.enum) ? schema.enum.map(String).join(' | ') : undefined
    const type = Array.isArray(schema.type) ? schema.type.join(' or ') : String(schema.type ?? schema.const ?? 'any')
    const { minimum, maximum, maxLength } = schema
    const number = minimum === undefined && maximum === undefined ? '' : rangeOf(minimum, maximum)
    const length = maxLength === undefined ? '' : `up to ${maxLength} characters`
    return [choices ?? type, schema.format, number, length, fallback]
      .filter(part => part !== undefined && part !== '')
      .join(', ')
  }
}

const folded = (title: string, inside: string): string =>
  `<details><summary>${escapeHtml(title)}</summary>${inside}</details>`

function rangeOf(minimum: unknown, maximum: unknown): string {
  if (maximum === undefined) return `at least ${minimum}`
  return minimum === undefined ? `at most ${maximum}` : `${minimum}..${maximum}`
}

/** Kind and name of the component that a reference names; empty for anything else. */
export function referenceOf(schema: Schema): string[] {
  const [, ...parts] = /^#\/components\/(\w+)\/(.+)$/.exec(String(schema.$ref ?? '')) ?? []
  return parts
}
