import type * as z from 'zod'
import { type DescriptionTexts, openApiDocument } from '../../api/description/document.js'
import type { Route } from '../../api/route.js'
import { formOf, type OpenApi, objectOf, type Parameter, type Schema } from '../../api/schema.js'
import type { Caller } from '../../identity/caller.js'
import { COUNTED_RESOURCES } from '../quota.js'
import { RIGHTS, type Right, type Service } from './dialect.js'
import { EXAMPLES } from './examples.js'
import { SINGULARS } from './kinds.js'
import { noopItem } from './noop.js'
import type { Item } from './resource.js'
import { CREATE_SCHEMAS, UPDATE_SCHEMAS } from './schemas.js'

type NetworkRoute = Route<Service, Caller, Right>

/** The API as an OpenAPI document. Pure. */
export const networkDescription = (routes: readonly NetworkRoute[]): OpenApi =>
  openApiDocument(routes, { ...TEXTS, schemas: schemas() })

const text: Schema = { type: 'string' }
const limits = (form: Schema) => Object.fromEntries(COUNTED_RESOURCES.map(name => [name, form]))
const limit: Schema = { type: 'integer', minimum: -1, description: '-1 is unlimited.' }

const schemas = (): Readonly<Record<string, Schema>> => ({
  ...Object.fromEntries(SINGULARS.map(kind => [kind, answerForm(noopItem(kind), CREATE_SCHEMAS[kind])])),
  ...formsOf('create', CREATE_SCHEMAS),
  ...formsOf('update', UPDATE_SCHEMAS),
  router_interface: objectOf({
    id: text,
    tenant_id: text,
    project_id: text,
    port_id: text,
    network_id: text,
    subnet_id: text,
    subnet_ids: { type: 'array', items: text },
  }),
  tags: objectOf({ tags: { type: 'array', items: text } }),
  links: {
    type: 'array',
    items: objectOf({ rel: { type: 'string', enum: ['next', 'previous'] }, href: { type: 'string', format: 'uri' } }),
    description: 'URLs of the next and the previous page.',
  },
  version: objectOf({ id: text, status: text, links: { type: 'array', items: { type: 'object' } } }),
  extension: objectOf({ alias: text, name: text, description: text, updated: text, links: { type: 'array' } }),
  quota: objectOf(limits(limit)),
  project_quota: objectOf({ project_id: text, tenant_id: text, ...limits(limit) }),
  quota_details: objectOf(
    limits(objectOf({ limit, used: { type: 'integer' }, reserved: { type: 'integer', const: 0 } })),
  ),
  fault: objectOf({
    NeutronError: objectOf({
      type: { type: 'string', description: 'Name of the error.' },
      message: { type: 'string', description: 'What is wrong.' },
      detail: text,
    }),
  }),
  unauthorized: objectOf({ error: objectOf({ code: { type: 'integer' }, title: text, message: text }) }),
})

const formsOf = (verb: string, schemas: Readonly<Record<string, z.ZodObject>>): Record<string, Schema> =>
  Object.fromEntries(Object.entries(schemas).map(([kind, schema]) => [`${kind}_${verb}`, formOf(schema)]))

/** The form of an object in answers: the types of an example, nullable where the create request is. */
function answerForm(example: Item, create: z.ZodObject): Schema {
  const given = formOf(create).properties
  const properties = Object.entries(example).map(([name, value]) => {
    const form = JSON.stringify(Object(Object(given)[name]))
    const type = Array.isArray(value) ? 'array' : typeof value === 'number' ? 'integer' : typeof value
    return [name, value === null ? {} : { type: form.includes('"null"') ? [type, 'null'] : type }] as const
  })
  return objectOf(Object.fromEntries(properties))
}

const list = (name: string, description: string): Parameter => ({
  name,
  in: 'query',
  description,
  schema: { type: 'array', items: text },
  style: 'form',
  explode: true,
})

const TEXTS: Omit<DescriptionTexts<NetworkRoute>, 'schemas'> = {
  title: 'Networking',
  version: '2.0',
  summary: 'The subset of the Networking API v2.0 that load balancer clients need.',
  description:
    'Networks, subnets, ports, routers, floating IPs and security groups, with their tags and quotas. Lists accept repeated filters: one of the values must match.',
  groups: {
    networks: 'Networks contain subnets and ports.',
    subnets: 'Address ranges of a network.',
    ports: 'Attachments of devices to a network, with their MAC and IP addresses.',
    routers: 'Routers connect subnets with each other and, by their gateway, with an external network.',
    floatingips: 'Addresses of an external network that lead to a port behind a router.',
    security_groups: 'What the ports that have the group may send and receive.',
    security_group_rules: 'What a security group lets through, in one direction and for one IP version.',
    quotas: 'Limits on the number of objects of each kind in a project.',
    compute: 'For Horizon, which asks for servers. This service has none.',
    extensions: 'The extensions this service supports, and empty lists for resources it does not have.',
  },
  parameters: {
    fields: list('fields', 'Attributes to return for each object; default: all.'),
    sort_key: list('sort_key', 'Attributes to sort by.'),
    sort_dir: list('sort_dir', 'Sort directions, asc or desc: one for each sort_key.'),
    limit: {
      name: 'limit',
      in: 'query',
      description: 'Maximum number of objects per page.',
      schema: { type: 'integer' },
    },
    marker: { name: 'marker', in: 'query', description: 'ID of the last object of the previous page.', schema: text },
    page_reverse: {
      name: 'page_reverse',
      in: 'query',
      description: 'Whether to return the page before the marker instead of the one after it.',
      schema: { type: 'boolean', default: false },
    },
  },
  errors: {
    400: ['The request is malformed or breaks a rule.', 'fault'],
    401: ['The token is missing or invalid.', 'unauthorized'],
    403: ['The caller’s roles do not permit the request.', 'fault'],
    404: ['The object does not exist, or the caller may not see it.', 'fault'],
    409: ['The object or its address is in use, or the quota is exceeded.', 'fault'],
    412: ['The object has another revision number than If-Match names.', 'fault'],
    413: ['The request body is too large.', 'fault'],
    415: ['The request body is not JSON.', 'fault'],
    429: ['The caller sends too many requests.', 'fault'],
    500: ['An unexpected error. Report the request ID to the operator.', 'fault'],
    501: ['This service does not offer such objects.', 'fault'],
    503: ['The service is temporarily unavailable. Try again.', 'fault'],
  },
  errorsOf: route => {
    if ('open' in route) return [500]
    const common = [400, 401, 403, 404, 429, 500, 503].filter(status => status !== route.status)
    return route.method === 'GET' ? common : [...common, 409, 412, 413, 415]
  },
  examples: EXAMPLES,
  rightOf: route => ('open' in route ? { sentence: '' } : { sentence: RIGHTS[route.right], name: route.right }),
  pathParameter: name => {
    if (name === 'id') return { description: 'ID of the object.', schema: { type: 'string', format: 'uuid' } }
    return { description: `The ${name}.`, schema: text }
  },
}
