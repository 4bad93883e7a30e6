import type { Parameter, Schema } from '../../api/schema.js'
import { type Resource, sqlOf } from '../schema/resource.js'

const parameter = (name: string, description: string, schema: Schema): Parameter => ({
  name,
  in: 'query',
  description,
  schema,
})

const list = (name: string, description: string): Parameter => ({
  ...parameter(name, description, { type: 'array', items: { type: 'string' } }),
  style: 'form',
  explode: false,
})

/** Parameters that many routes have, by the names under which routes refer to them. */
export const SHARED_PARAMETERS: Readonly<Record<string, Parameter>> = {
  fields: list('fields', 'Only these keys of each object.'),
  sort: list('sort', 'Keys to sort by, each with :asc or :desc or nothing.'),
  sort_key: list('sort_key', 'The same without directions.'),
  sort_dir: list('sort_dir', 'Directions for sort_key: asc or desc.'),
  limit: parameter('limit', 'Most objects on the page.', { type: 'integer' }),
  marker: parameter('marker', 'The last object of the page before.', { type: 'string' }),
  page_reverse: parameter('page_reverse', 'Whether the page before the marker is desired.', {
    type: 'boolean',
    default: false,
  }),
  tags: list('tags', 'Only objects that have all of these tags.'),
  'tags-any': list('tags-any', 'Only objects that have at least one of these tags.'),
  'not-tags': list('not-tags', 'Only objects that do not have all of these tags.'),
  'not-tags-any': list('not-tags-any', 'Only objects that have none of these tags.'),
  idempotency_key: {
    name: 'Idempotency-Key',
    in: 'header',
    description:
      'Any word, new for each request: the same request with the same key within a day is carried out only once and answered alike.',
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  },
}

type Reference = { $ref: string }

const shared = (name: string): Reference => ({ $ref: `#/components/parameters/${name}` })
const PAGING = ['fields', 'sort', 'sort_key', 'sort_dir', 'limit', 'marker', 'page_reverse'].map(shared)
const TAGS = ['tags', 'tags-any', 'not-tags', 'not-tags-any'].map(shared)

export const FIELDS = shared('fields')
export const IDEMPOTENCY_KEY = shared('idempotency_key')

/** What a list can be asked for: filters, tags, order and pages. */
export const listParameters = (resource: Resource): (Parameter | Reference)[] => [
  ...filtersOf(resource),
  ...(resource.tagged ? TAGS : []),
  ...PAGING,
]

function filtersOf(resource: Resource): Parameter[] {
  const own = Object.entries(resource.attributes).filter(
    ([name, attribute]) => attribute.filterable && attribute.kind !== 'json' && sqlOf(name, attribute) !== null,
  )
  const names = new Set([...own.map(([name]) => name), ...Object.keys(resource.filters)])
  return [...names].map(name => {
    const kind = resource.filters[name]?.kind ?? resource.attributes[name]?.kind
    const about = resource.filters[name]?.about ?? resource.attributes[name]?.about ?? ''
    const type = kind === 'integer' || kind === 'number' || kind === 'boolean' ? kind : 'string'
    return parameter(name, `Only objects with this value. ${about}`.trim(), { type })
  })
}

/** An argument that is true or false, and false when it is not given. */
export const flag = (name: string, description: string): Parameter =>
  parameter(name, description, { type: 'boolean', default: false })

/** An argument that lists compare with an attribute. */
export const textFilter = (name: string): Parameter =>
  parameter(name, `Only those with this ${name}.`, { type: 'string' })
