import { type DescriptionTexts, openApiDocument } from '../../api/description/document.js'
import { type OpenApi, objectOf, type Schema } from '../../api/schema.js'
import { EXAMPLES } from '../description/examples.js'
import { SHARED_PARAMETERS } from '../description/parameters.js'
import { RESOURCES } from '../description/resources.js'
import { answerSchema, requestSchema } from '../description/schemas.js'
import { type Policy, RIGHTS } from '../schema/rights.js'
import { HEALTH_CHECK_PATH, type LoadBalancerRoute } from './dialect.js'
import { VERSION_NODE } from './paths.js'
import { NEWEST_VERSION } from './versions.js'

/** The API as an OpenAPI document. Pure. @param policy whose roles it names */
export const loadBalancerDescription = (routes: readonly LoadBalancerRoute[], policy: Policy): OpenApi =>
  openApiDocument(routes, {
    ...TEXTS,
    schemas: { ...SHARED_SCHEMAS, ...resourceSchemas() },
    rightOf: route => rightOf(route, policy),
  })

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
  400: ['The request is malformed or invalid.', 'fault'],
  401: ['The token is missing, invalid or expired.', 'unauthorized'],
  403: ['The caller lacks a role, or a quota is met.', 'fault'],
  404: ['The object does not exist.', 'fault'],
  406: ['The client does not accept JSON.', 'not_acceptable'],
  409: ['The object is being deleted, is in use, or conflicts with another object.', 'fault'],
  413: ['The body is too large.', 'fault'],
  415: ['The body is not JSON.', 'fault'],
  422: ['The Idempotency-Key was used for a different request.', 'fault'],
  500: ['An unexpected error.', 'fault'],
  501: ['The provider does not support the request.', 'fault'],
  503: ['A service is unavailable or busy; try again later.', 'fault'],
}

const READ_ERRORS = [400, 401, 403, 404, 406, 500, 503]
const WRITE_ERRORS = [409, 413, 415, 501]

const text: Schema = { type: 'string' }
const counters = objectOf(
  Object.fromEntries(
    ['bytes_in', 'bytes_out', 'active_connections', 'total_connections', 'request_errors'].map(name => [
      name,
      { type: ['integer', 'null'] },
    ]),
  ),
)
/** Schemas that routes share and that belong to no resource. */
const SHARED_SCHEMAS: Readonly<Record<string, Schema>> = {
  statistics: {
    ...counters,
    description:
      'Totals since the object was created; active_connections is the current number. Null if the provider counts nothing.',
  },
  links: {
    type: 'array',
    items: objectOf({ rel: { type: 'string', enum: ['previous', 'next'] }, href: { type: 'string', format: 'uri' } }),
    description: 'URLs of the previous and next page.',
  },
  fault: {
    ...objectOf(
      {
        faultcode: { type: 'string', enum: ['Client', 'Server'] },
        faultstring: { type: 'string', description: 'Human-readable error message.' },
        debuginfo: { type: 'null' },
        code: { type: 'integer', description: 'HTTP status, if the path itself is wrong.' },
        title: text,
        description: text,
      },
      ['faultcode', 'faultstring', 'debuginfo'],
    ),
    description: 'An error.',
  },
  unauthorized: objectOf({ error: objectOf({ code: { type: 'integer' }, title: text, message: text }) }),
  not_acceptable: objectOf({
    errors: {
      type: 'array',
      items: objectOf({ status: { type: 'integer' }, title: text, detail: text, request_id: text }),
    },
  }),
}

/** Path of a route for clients: below the version, except for routes that describe the API itself. */
function pathOf({ path }: LoadBalancerRoute): string {
  if (path === DOCUMENT_PATH) return `${DOCUMENT_PATH}.json`
  return path.startsWith('/lbaas/') || path.startsWith('/octavia/') ? `${VERSION_NODE}${path}` : path
}

/** The router sees paths without `.json`. */
export const DOCUMENT_PATH = '/openapi'

/** One sentence on who may use a route. */
function rightOf(route: LoadBalancerRoute, policy: Policy): { sentence: string; name?: string } {
  if ('open' in route || route.right === 'any token') return { sentence: 'Any valid token.' }
  const { owner, everywhere } = RIGHTS[route.right][policy]
  const own = owner.length === 0 ? '' : `In the caller’s project: ${owner.join(', ')}. `
  return { sentence: `${own}In all projects: ${everywhere.join(', ')}.`, name: route.right }
}

function pathParameter(name: string, { path }: LoadBalancerRoute): { description: string; schema: Schema } {
  const [, group = ''] = new RegExp(`/(\\w+)/:${name}`).exec(path) ?? []
  const owner = (RESOURCES[group]?.resource.singular ?? group.replace(/s$/, '')).replaceAll('_', ' ')
  const isId = name === 'id' || name === 'pool' || name === 'policy'
  return {
    description: `${name === 'name' ? 'Name' : 'Id or name, as shown in lists,'} of the ${owner}.`,
    schema: isId ? { type: 'string', format: 'uuid' } : text,
  }
}

const TEXTS: Omit<DescriptionTexts<LoadBalancerRoute>, 'schemas' | 'rightOf'> = {
  title: 'Load balancing',
  version: NEWEST_VERSION,
  summary: 'The load balancing API v2.',
  description:
    'Changes are asynchronous: the response has provisioning_status PENDING_*. Poll the object until it is ACTIVE or ERROR. Paths work below /v2, below /v2.0, and without a version.',
  groups: Object.fromEntries(Object.entries(RESOURCES).map(([name, { about }]) => [name, about])),
  parameters: SHARED_PARAMETERS,
  errors: ERRORS,
  errorsOf: ({ method, ...route }) =>
    'open' in route
      ? []
      : [...READ_ERRORS, ...(method === 'GET' ? [] : WRITE_ERRORS), ...(method === 'POST' ? [422] : [])],
  examples: EXAMPLES,
  pathParameter,
  pathOf,
  // Without the common first segment.
  namingPathOf: ({ path }) => path.replace(/^\/(lbaas|octavia)\//, '/'),
  otherPaths: {
    [HEALTH_CHECK_PATH]: {
      get: {
        operationId: 'healthcheck',
        tags: ['service'],
        summary: 'Check the health of the service, if enabled',
        security: [],
        'x-codeSamples': [{ lang: 'Shell', label: 'curl', source: `curl -i "$LOAD_BALANCER_URL${HEALTH_CHECK_PATH}"` }],
        responses: {
          200: { description: 'The service works.', content: { 'text/plain': { schema: text } } },
          503: {
            description: 'The service does not work; the text gives the reason.',
            content: { 'text/plain': { schema: text } },
          },
        },
      },
    },
  },
}
