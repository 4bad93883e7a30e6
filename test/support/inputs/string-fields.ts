import { RESOURCES } from '../../../controller/load-balancer/description/resources.js'

export type StringKind = 'free' | 'choice' | 'id'

/** A place for text in a request body: `pool.session_persistence.cookie_name`, `listener.allowed_cidrs[]`, `listener.insert_headers{}`. */
export type StringLeaf = {
  name: string
  kind: StringKind
  /** Collection of the resource, as in paths. */
  collection: string
  attribute: string
  onUpdate: boolean
  /** The attribute's value with this text in its place. */
  valueWith: (text: string) => unknown
}

/** Every text that a request may contain, from the attributes of all resources. */
export function stringLeaves(): StringLeaf[] {
  return Object.entries(RESOURCES).flatMap(([collection, { resource }]) =>
    Object.entries(resource.attributes).flatMap(([attribute, { type, input }]) =>
      type === null || input === 'none'
        ? []
        : leavesOf(type.jsonSchema).map(({ path, kind, valueWith }) => ({
            name: `${resource.singular}.${attribute}${path}`,
            kind,
            collection,
            attribute,
            onUpdate: input === 'create-and-update',
            valueWith,
          })),
    ),
  )
}

type Leaf = { path: string; kind: StringKind; valueWith: (text: string) => unknown }

function leavesOf(schema: Readonly<Record<string, unknown>>): Leaf[] {
  const within = (path: string, inner: unknown, wrap: (value: unknown) => unknown): Leaf[] =>
    leavesOf(Object(inner)).map(leaf => ({
      ...leaf,
      path: path + leaf.path,
      valueWith: text => wrap(leaf.valueWith(text)),
    }))
  if (schema.type === 'array') return within('[]', schema.items, value => [value])
  if (schema.type === 'object') {
    const named = Object.entries(Object(schema.properties)).flatMap(([key, inner]) =>
      within(`.${key}`, inner, value => ({ [key]: value })),
    )
    if (typeof schema.additionalProperties !== 'object') return named
    const key: Leaf = { path: '{key}', kind: 'free', valueWith: text => ({ [text]: 'true' }) }
    return [...named, key, ...within('{}', schema.additionalProperties, value => ({ 'X-Forwarded-For': value }))]
  }
  if (schema.type !== 'string') return []
  const kind = Array.isArray(schema.enum) ? 'choice' : schema.format === 'uuid' ? 'id' : 'free'
  return [{ path: '', kind, valueWith: text => text }]
}
