import { type DescriptionTexts, openApiDocument } from '../../api/description/document.js'
import { type OpenApi, objectOf, type Schema } from '../../api/schema.js'
import { SHARED_PARAMETERS } from '../description/parameters.js'
import { RESOURCES } from '../description/resources.js'
import { answerSchema, requestSchema } from '../description/schemas.js'
import { RIGHTS } from '../schema/rights.js'
import { HEALTH_CHECK_PATH, type LoadBalancerRoute } from './dialect.js'
import { VERSION_NODE } from './paths.js'
import { NEWEST_VERSION } from './versions.js'

/** The API as an OpenAPI document. Pure. */
export const loadBalancerDescription = (routes: readonly LoadBalancerRoute[]): OpenApi =>
  openApiDocument(routes, { ...TEXTS, schemas: { ...SHARED_SCHEMAS, ...resourceSchemas() } })

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

const text: Schema = { type: 'string' }
const counters = objectOf(
  Object.fromEntries(
    ['bytes_in', 'bytes_out', 'active_connections', 'total_connections', 'request_errors'].map(name => [
      name,
      { type: 'integer' },
    ]),
  ),
)
/** Schemas that the routes share and that belong to no resource. */
const SHARED_SCHEMAS: Readonly<Record<string, Schema>> = {
  statistics: {
    ...counters,
    description: 'Totals since the object was made; active_connections is the present number.',
  },
  links: {
    type: 'array',
    items: objectOf({ rel: { type: 'string', enum: ['previous', 'next'] }, href: { type: 'string', format: 'uri' } }),
    description: 'URLs of the pages before and after this one.',
  },
  fault: {
    ...objectOf(
      {
        faultcode: { type: 'string', enum: ['Client', 'Server'] },
        faultstring: { type: 'string', description: 'What is wrong, for people.' },
        debuginfo: { type: 'null' },
        code: { type: 'integer', description: 'The status, when the path itself is wrong.' },
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

/** Where clients reach a route: below the version, but for what describes the API as a whole. */
function pathOf({ path }: LoadBalancerRoute): string {
  if (path === DOCUMENT_PATH) return `${DOCUMENT_PATH}.json`
  return path.startsWith('/lbaas/') || path.startsWith('/octavia/') ? `${VERSION_NODE}${path}` : path
}

/** Paths lose `.json` before they are routed. */
export const DOCUMENT_PATH = '/openapi'

/** Who may use a route, in a sentence. */
function rightOf(route: LoadBalancerRoute): { sentence: string; name?: string } {
  if ('open' in route || route.right === 'any token') return { sentence: 'Everybody who has a token.' }
  const { owner, everywhere }: { owner: readonly string[]; everywhere: readonly string[] } = RIGHTS[route.right]
  const own = owner.length === 0 ? '' : `In the own project: ${owner.join(', ')}. `
  return { sentence: `${own}In every project: ${everywhere.join(', ')}.`, name: route.right }
}

function pathParameter(name: string, { path }: LoadBalancerRoute): { description: string; schema: Schema } {
  const [, group = ''] = new RegExp(`/(\\w+)/:${name}`).exec(path) ?? []
  const owner = (RESOURCES[group]?.resource.singular ?? group.replace(/s$/, '')).replaceAll('_', ' ')
  const isId = name === 'id' || name === 'pool' || name === 'policy'
  return {
    description: `The ${owner}’s ${name === 'name' ? 'name' : 'id or name as its list shows it'}.`,
    schema: isId ? { type: 'string', format: 'uuid' } : text,
  }
}

const TEXTS: Omit<DescriptionTexts<LoadBalancerRoute>, 'schemas'> = {
  title: 'Load balancing',
  version: NEWEST_VERSION,
  summary: 'The load-balancing API v2.',
  description:
    'Changes are answered at once, in provisioning_status PENDING_*, and take effect by themselves: read the object until it is ACTIVE, or ERROR. Paths are served below /v2, /v2.0 and without a version.',
  groups: Object.fromEntries(Object.entries(RESOURCES).map(([name, { about }]) => [name, about])),
  parameters: SHARED_PARAMETERS,
  errors: ERRORS,
  errorsOf: ({ method, ...route }) =>
    'open' in route
      ? []
      : [...READ_ERRORS, ...(method === 'GET' ? [] : WRITE_ERRORS), ...(method === 'POST' ? [422] : [])],
  rightOf,
  pathParameter,
  pathOf,
  // Without the part that all of them begin with.
  namingPathOf: ({ path }) => path.replace(/^\/(lbaas|octavia)\//, '/'),
  otherPaths: {
    [HEALTH_CHECK_PATH]: {
      get: {
        operationId: 'healthcheck',
        tags: ['service'],
        summary: 'Whether the service works, where the operator offers that',
        security: [],
        responses: {
          200: { description: 'It works.', content: { 'text/plain': { schema: text } } },
          503: { description: 'It does not; the text says why.', content: { 'text/plain': { schema: text } } },
        },
      },
    },
  },
}
