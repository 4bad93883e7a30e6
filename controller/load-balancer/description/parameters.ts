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

/** Parameters that routes share, by the names in their references. */
export const SHARED_PARAMETERS: Readonly<Record<string, Parameter>> = {
  fields: list('fields', 'Keys to return of each object.'),
  sort: list('sort', 'Keys to sort by, each optionally with :asc or :desc.'),
  sort_key: list('sort_key', 'Keys to sort by, without directions.'),
  sort_dir: list('sort_dir', 'Directions of sort_key: asc or desc.'),
  limit: parameter('limit', 'Maximum number of objects on the page.', { type: 'integer' }),
  marker: parameter('marker', 'Last object of the previous page.', { type: 'string' }),
  page_reverse: parameter('page_reverse', 'Whether to return the page before the marker.', {
    type: 'boolean',
    default: false,
  }),
  tags: list('tags', 'Only objects with all of these tags.'),
  'tags-any': list('tags-any', 'Only objects with at least one of these tags.'),
  'not-tags': list('not-tags', 'Only objects that lack at least one of these tags.'),
  'not-tags-any': list('not-tags-any', 'Only objects with none of these tags.'),
  idempotency_key: {
    name: 'Idempotency-Key',
    in: 'header',
    description:
      'A word that is new for each request. A repeat of the request with the same key within a day gets the first response and has no further effect. Of the responses of a project, the newest 64 MiB are kept.',
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  },
}

type Reference = { $ref: string }

const shared = (name: string): Reference => ({ $ref: `#/components/parameters/${name}` })
const PAGING = ['fields', 'sort', 'sort_key', 'sort_dir', 'limit', 'marker', 'page_reverse'].map(shared)
const TAGS = ['tags', 'tags-any', 'not-tags', 'not-tags-any'].map(shared)

export const FIELDS = shared('fields')
export const IDEMPOTENCY_KEY = shared('idempotency_key')

/** Parameters of a list: filters, tags, sorting and pagination. */
export const listParameters = (resource: Resource): (Parameter | Reference)[] => [
  ...filtersOf(resource),
  ...(resource.tagged ? TAGS : []),
  ...PAGING,
]

function filtersOf(resource: Resource): Parameter[] {
  const attributes = Object.entries(resource.attributes).filter(
    ([name, attribute]) => attribute.filterable && attribute.kind !== 'json' && sqlOf(name, attribute) !== null,
  )
  const names = new Set([...attributes.map(([name]) => name), ...Object.keys(resource.filters)])
  return [...names].map(name => {
    const kind = resource.filters[name]?.kind ?? resource.attributes[name]?.kind
    const about = resource.filters[name]?.about ?? resource.attributes[name]?.about ?? ''
    const type = kind === 'integer' || kind === 'number' || kind === 'boolean' ? kind : 'string'
    return parameter(name, `Only objects with this value. ${about}`.trim(), { type })
  })
}

/** A boolean parameter; defaults to false. */
export const flag = (name: string, description: string): Parameter =>
  parameter(name, description, { type: 'boolean', default: false })

/** A parameter that filters by an attribute. */
export const textFilter = (name: string): Parameter =>
  parameter(name, `Only objects with this ${name}.`, { type: 'string' })
