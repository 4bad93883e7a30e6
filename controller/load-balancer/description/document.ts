import { objectOf, ref, type Schema } from '../../api/schema.js'
import { NEWEST_VERSION } from '../api/versions.js'
import type { Resource } from '../schema/resource.js'
import { sqlOf } from '../schema/resource.js'
import { ROUTE_RIGHTS, type Route } from '../schema/rights.js'
import { describeRoute, keyOf, type Operation, type QueryParameter, rightOf, SHARED_SCHEMAS } from './operations.js'
import { RESOURCES } from './resources.js'
import { answerSchema, requestSchema } from './schemas.js'

type Json = Readonly<Record<string, unknown>>

/** The API as an OpenAPI 3.1 document, made from what the API itself works by. Pure. */
export function openApiDocument(): Json {
  const routes = Object.keys(ROUTE_RIGHTS) as Route[]
  const operations = routes.flatMap(route => describeRoute(route) ?? [])
  const groups = [...new Set(operations.map(({ group }) => group))]
  return {
    openapi: '3.1.1',
    info: {
      title: 'Load balancing',
      version: NEWEST_VERSION,
      summary: 'The load-balancing API v2.',
      description:
        'Changes are answered at once, in provisioning_status PENDING_*, and take effect by themselves: read the object until it is ACTIVE, or ERROR. Paths are served below /v2, /v2.0 and without a version.',
    },
    // Relative to where this document is served.
    servers: [{ url: '.' }],
    security: [{ token: [] }],
    tags: groups.map(name => ({ name, description: RESOURCES[name]?.about ?? `The ${name}.` })),
    paths: { ...OPEN_PATHS, ...pathsOf(operations) },
    components: {
      securitySchemes: {
        token: { type: 'apiKey', in: 'header', name: 'X-Auth-Token', description: 'A token of the identity service.' },
      },
      schemas: { ...SHARED_SCHEMAS, ...resourceSchemas() },
      parameters: SHARED_PARAMETERS,
      headers: {
        request_id: { description: 'Id of the request, which the log carries.', schema: { type: 'string' } },
      },
      responses: Object.fromEntries(
        Object.entries(ERRORS).map(([status, [description, schema]]) => [
          `error_${status}`,
          { ...answerOf(description, ref(schema)) },
        ]),
      ),
    },
  }
}

function resourceSchemas(): Record<string, Schema> {
  const byCollection = Object.fromEntries(Object.entries(RESOURCES).map(([name, { resource }]) => [name, resource]))
  return Object.fromEntries(
    Object.values(RESOURCES).flatMap(({ resource, create, update }) => [
      [resource.singular, answerSchema(resource)],
      ...(create === undefined
        ? []
        : [[`${resource.singular}_create`, requestSchema(create, resource, 'create', byCollection)]]),
      ...(update === undefined
        ? []
        : [[`${resource.singular}_update`, requestSchema(update, resource, 'update', byCollection)]]),
    ]),
  )
}

const ERRORS: Readonly<Record<number, readonly [string, string]>> = {
  400: ['The request is malformed or breaks a rule.', 'fault'],
  401: ['There is no token, or it is no longer good.', 'unauthorized'],
  403: ['The caller’s roles do not suffice, or a quota is met.', 'fault'],
  404: ['There is no such object.', 'fault'],
  406: ['The client takes no JSON.', 'not_acceptable'],
  409: ['The object is being deleted or in use, or another one has its place.', 'fault'],
  413: ['The body is too large.', 'fault'],
  415: ['The body is not JSON.', 'fault'],
  422: ['The Idempotency-Key was used for another request.', 'fault'],
  500: ['Something unexpected; the log tells more under the request’s id.', 'fault'],
  501: ['The provider cannot carry this out.', 'fault'],
  503: ['The database or another service cannot be reached, or is busy; try again.', 'fault'],
}

const READ_ERRORS = [400, 401, 403, 404, 406, 500, 503]
const WRITE_ERRORS = [409, 413, 415, 501]

const parameter = (name: string, description: string, schema: Schema, place = 'query'): Json => ({
  name,
  in: place,
  description,
  schema,
  ...(place === 'path' ? { required: true } : {}),
})

const list = (description: string): Json => ({
  description,
  schema: { type: 'array', items: { type: 'string' } },
  style: 'form',
  explode: false,
})

const SHARED_PARAMETERS: Readonly<Record<string, Json>> = {
  fields: { name: 'fields', in: 'query', ...list('Only these keys of each object.') },
  sort: { name: 'sort', in: 'query', ...list('Keys to sort by, each with :asc or :desc or nothing.') },
  sort_key: { name: 'sort_key', in: 'query', ...list('The same without directions.') },
  sort_dir: { name: 'sort_dir', in: 'query', ...list('Directions for sort_key: asc or desc.') },
  limit: parameter('limit', 'Most objects on the page.', { type: 'integer' }),
  marker: parameter('marker', 'The last object of the page before.', { type: 'string' }),
  page_reverse: parameter('page_reverse', 'Whether the page before the marker is desired.', {
    type: 'boolean',
    default: false,
  }),
  tags: { name: 'tags', in: 'query', ...list('Only objects that have all of these tags.') },
  'tags-any': { name: 'tags-any', in: 'query', ...list('Only objects that have at least one of these tags.') },
  'not-tags': { name: 'not-tags', in: 'query', ...list('Only objects that do not have all of these tags.') },
  'not-tags-any': { name: 'not-tags-any', in: 'query', ...list('Only objects that have none of these tags.') },
  idempotency_key: parameter(
    'Idempotency-Key',
    'Any word, new for each request: the same request with the same key within a day is carried out only once and answered alike.',
    { type: 'string', minLength: 1, maxLength: 255 },
    'header',
  ),
}

const PAGING = ['fields', 'sort', 'sort_key', 'sort_dir', 'limit', 'marker', 'page_reverse']
const TAGS = ['tags', 'tags-any', 'not-tags', 'not-tags-any']
const shared = (name: string): Json => ({ $ref: `#/components/parameters/${name}` })

function queryOf({ query, group, route }: Operation): Json[] {
  if (query === 'show') return [shared('fields')]
  if (query !== 'list')
    return query.map(({ name, description, schema }: QueryParameter) => parameter(name, description, schema))
  const resource = RESOURCES[route.split('/').at(-1) ?? group]?.resource
  if (resource === undefined) return []
  return [...filtersOf(resource), ...(resource.tagged ? TAGS : []).map(shared), ...PAGING.map(shared)]
}

function filtersOf(resource: Resource): Json[] {
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

function pathsOf(operations: readonly Operation[]): Record<string, Json> {
  const paths: Record<string, Json> = {}
  for (const operation of operations) {
    const [method = '', pattern = ''] = operation.route.split(' ')
    const path = `/v2${pattern.replace(/:(\w+)/g, '{$1}')}`
    const inPath = [...pattern.matchAll(/\/(\w+)\/:(\w+)/g)]
    const item = paths[path] ?? withParameters(inPath.map(([, group = '', name = '']) => pathParameter(group, name)))
    paths[path] = { ...item, [method.toLowerCase()]: operationOf(operation, method) }
  }
  return paths
}

const withParameters = (parameters: readonly Json[]): Json => (parameters.length === 0 ? {} : { parameters })

const pathParameter = (group: string, name: string): Json => {
  const schema =
    name === 'id' || name === 'pool' || name === 'policy' ? { type: 'string', format: 'uuid' } : { type: 'string' }
  return parameter(
    name,
    `The ${keyOf(group).replaceAll('_', ' ')}’s ${name === 'name' ? 'name' : 'id or name as its list shows it'}.`,
    schema,
    'path',
  )
}

function operationOf(operation: Operation, method: string): Json {
  const { route, group, summary, status, request, answer } = operation
  const parameters = [...queryOf(operation), ...(method === 'POST' ? [shared('idempotency_key')] : [])]
  const errors = [...READ_ERRORS, ...(method === 'GET' ? [] : WRITE_ERRORS), ...(method === 'POST' ? [422] : [])].sort()
  return {
    operationId: operationIdOf(method, route),
    tags: [group],
    summary,
    description: rightOf(route),
    ...withParameters(parameters),
    ...(request === undefined
      ? {}
      : { requestBody: { required: true, content: { 'application/json': { schema: request } } } }),
    responses: {
      [status]: answerOf(answer === undefined ? 'Done; there is no body.' : summary, answer),
      ...Object.fromEntries(errors.map(code => [code, { $ref: `#/components/responses/error_${code}` }])),
    },
    'x-right': ROUTE_RIGHTS[route],
  }
}

function operationIdOf(method: string, route: Route): string {
  const words = route
    .split('/')
    .slice(2)
    .map(segment => (segment.startsWith(':') ? `by_${segment.slice(1)}` : segment))
  return [method.toLowerCase(), ...words].join('_')
}

const answerOf = (description: string, schema?: Schema): Json => ({
  description,
  headers: { 'X-Openstack-Request-Id': { $ref: '#/components/headers/request_id' } },
  ...(schema === undefined ? {} : { content: { 'application/json': { schema } } }),
})

const open = (operationId: string, summary: string, content: Json): Json => ({
  get: { operationId, tags: ['service'], summary, security: [], responses: { 200: { description: summary, content } } },
})

const OPEN_PATHS: Readonly<Record<string, Json>> = {
  '/': open('versions', 'The versions of the API', {
    'application/json': { schema: objectOf({ versions: { type: 'array', items: { type: 'object' } } }) },
  }),
  '/healthcheck': open('healthcheck', 'Whether the service works, where the operator offers that', {
    'text/plain': { schema: { type: 'string' } },
  }),
  '/openapi.json': open('openapi', 'This description', { 'application/json': { schema: { type: 'object' } } }),
  '/docs': open('docs', 'This description as a page', { 'text/html': { schema: { type: 'string' } } }),
}
