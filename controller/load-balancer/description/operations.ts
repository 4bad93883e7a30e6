import { objectOf, ref, type Schema } from '../../api/schema.js'
import { singularOf } from '../change/events.js'
import { COUNTED_RESOURCES } from '../objects/quotas/limits.js'
import { RIGHTS, ROUTE_RIGHTS, type Route } from '../schema/rights.js'
import { RESOURCES } from './resources.js'

/** What one route does, in the words of the description. */
export type Operation = {
  route: Route
  /** Name of the collection under which readers look for it. */
  group: string
  summary: string
  status: number
  request?: Schema
  answer?: Schema
  /** Names of the query parameters, which `parameters` describe. */
  query: 'list' | 'show' | readonly QueryParameter[]
}

export type QueryParameter = { name: string; description: string; schema: Schema }

type Special = Omit<Operation, 'route' | 'group' | 'query'> & { group?: string; query?: readonly QueryParameter[] }

const wrapped = (key: string, inside: Schema): Schema => objectOf({ [key]: inside })
const truth: Schema = { type: 'boolean', default: false }
const text: Schema = { type: 'string' }
const counters = objectOf(
  Object.fromEntries(
    ['bytes_in', 'bytes_out', 'active_connections', 'total_connections', 'request_errors'].map(name => [
      name,
      { type: 'integer' },
    ]),
  ),
)
const limits = (form: Schema) => Object.fromEntries(COUNTED_RESOURCES.map(name => [name, form]))
const quotaAnswer = wrapped('quota', objectOf({ project_id: text, tenant_id: text, ...limits({ type: 'integer' }) }))
const named: Schema = { type: 'array', items: objectOf({ name: text, description: text }) }
const namedFilters: readonly QueryParameter[] = ['name', 'description'].map(name => ({
  name,
  description: `Only those with this ${name}.`,
  schema: text,
}))
const statistics = (what: string): Special => ({
  summary: `Traffic counters of a ${what}`,
  status: 200,
  answer: wrapped('stats', ref('statistics')),
})
const statuses: Special = {
  summary: 'Statuses of a load balancer and of all below it, as one picture',
  status: 200,
  answer: wrapped('statuses', objectOf({ loadbalancer: { type: 'object' } })),
}

/** Routes that are more than reading or writing one object or a list. */
const SPECIAL: Readonly<Partial<Record<Route, Special>>> = {
  'GET /lbaas/loadbalancers/:id/stats': statistics('load balancer'),
  'GET /lbaas/listeners/:id/stats': statistics('listener'),
  'GET /lbaas/pools/:id/stats': statistics('pool'),
  'GET /octavia/amphorae/:id/stats': {
    summary: 'Traffic counters of an amphora, one entry for each listener',
    status: 200,
    answer: wrapped('amphora_stats', { type: 'array', items: { type: 'object' } }),
  },
  'GET /lbaas/loadbalancers/:id/status': statuses,
  'GET /lbaas/loadbalancers/:id/statuses': statuses,
  'GET /lbaas/loadbalancers/:id/events': {
    group: 'loadbalancers',
    summary: 'History of a load balancer, the newest first',
    status: 200,
    answer: objectOf({ events: { type: 'array', items: ref('event') }, events_links: ref('links') }),
  },
  'DELETE /lbaas/loadbalancers/:id': {
    summary: 'Delete a load balancer',
    status: 204,
    query: [{ name: 'cascade', description: 'Whether all that hangs below it goes as well.', schema: truth }],
  },
  'PUT /lbaas/loadbalancers/:id/failover': { summary: 'Have every amphora of a load balancer replaced', status: 202 },
  'PUT /lbaas/pools/:pool/members': {
    summary: 'Replace all members of a pool; address and port tell which is which',
    status: 202,
    request: wrapped('members', { type: 'array', items: ref('member_create') }),
    query: [{ name: 'additive_only', description: 'Whether members that are not named stay.', schema: truth }],
  },
  'GET /lbaas/quotas/defaults': {
    summary: 'Limits of projects for which none were set',
    status: 200,
    answer: quotaAnswer,
  },
  'GET /lbaas/quotas/:project': { summary: 'Limits that hold for a project', status: 200, answer: quotaAnswer },
  'GET /lbaas/quotas/:project/default': {
    summary: 'Limits that a project would have by default',
    status: 200,
    answer: quotaAnswer,
  },
  'GET /lbaas/quotas/:project/usage': {
    summary: 'Limits of a project, and how many objects count against each',
    status: 200,
    answer: wrapped(
      'quota_usage',
      objectOf({
        project_id: text,
        tenant_id: text,
        ...limits(objectOf({ limit: { type: 'integer' }, in_use: { type: 'integer' } })),
      }),
    ),
  },
  'PUT /lbaas/quotas/:project': {
    summary: 'Set limits of a project; null puts one back to the default',
    status: 202,
    request: wrapped('quota', {
      ...objectOf(limits({ type: ['integer', 'null'], minimum: -1, maximum: 2_000_000_000 }), []),
      additionalProperties: false,
    }),
    answer: quotaAnswer,
  },
  'DELETE /lbaas/quotas/:project': { summary: 'Put all limits of a project back to the defaults', status: 202 },
  'GET /lbaas/providers': { summary: 'List the enabled providers', status: 200, answer: wrapped('providers', named) },
  'GET /lbaas/providers/:provider/flavor_capabilities': {
    summary: 'List what flavor data may ask of a provider',
    status: 200,
    answer: wrapped('flavor_capabilities', named),
    query: namedFilters,
  },
  'GET /lbaas/providers/:provider/availability_zone_capabilities': {
    summary: 'List what availability zone data may ask of a provider',
    status: 200,
    answer: wrapped('availability_zone_capabilities', named),
    query: namedFilters,
  },
  'PUT /octavia/amphorae/:id/failover': { summary: 'Have an amphora replaced', status: 202 },
  'PUT /octavia/amphorae/:id/config': { summary: 'Have an amphora configured anew', status: 202 },
}

/** Schemas that the routes share and that belong to no resource. */
export const SHARED_SCHEMAS: Readonly<Record<string, Schema>> = {
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

/**
 * Describes a route: by what its form says when it reads or writes an object or a list, else by the table above.
 * @returns null for a route that neither covers
 */
export function describeRoute(route: Route): Operation | null {
  const [method = '', path = ''] = route.split(' ')
  const segments = path.split('/').slice(2)
  const group = segments.findLast(segment => RESOURCES[segment] !== undefined) ?? segments[0] ?? ''
  const special = SPECIAL[route]
  if (special !== undefined) return { route, group, query: route.endsWith('/events') ? 'list' : [], ...special }
  const described = RESOURCES[group]
  const isItem = segments.at(-1)?.startsWith(':') === true
  const isCollection = segments.at(-1) === group
  if (described === undefined || (!isItem && !isCollection)) return null
  const { singular, plural, links, label } = described.resource
  const one = wrapped(singular, ref(singular))
  const body = (mode: 'create' | 'update') => wrapped(singular, ref(`${singular}_${mode}`))
  const name = label.replace(/^(?!L7)./, letter => letter.toLowerCase())
  const an = `${/^[aeiouL]/.test(name) ? 'an' : 'a'} ${lowered(label)}`
  switch (`${method} ${isItem ? 'item' : 'collection'}`) {
    case 'GET collection':
      return {
        route,
        group,
        summary: `List ${plural.replaceAll('_', ' ')}`,
        status: 200,
        answer: objectOf({ [plural]: { type: 'array', items: ref(singular) }, [links]: ref('links') }),
        query: 'list',
      }
    case 'POST collection':
      return { route, group, summary: `Make ${an}`, status: 201, request: body('create'), answer: one, query: [] }
    case 'GET item':
      return { route, group, summary: `Show ${an}`, status: 200, answer: one, query: 'show' }
    case 'PUT item':
      return {
        route,
        group,
        summary: `Change ${an}; only what is given changes`,
        status: 200,
        request: body('update'),
        answer: one,
        query: [],
      }
    case 'DELETE item':
      return { route, group, summary: `Delete ${an}`, status: 204, query: [] }
    default:
      return null
  }
}

const lowered = (label: string): string =>
  label
    .split(' ')
    .map(word => (word === 'L7' ? word : word.toLowerCase()))
    .join(' ')

/** Who may use a route, in a sentence. */
export function rightOf(route: Route): string {
  const { owner, everywhere }: { owner: readonly string[]; everywhere: readonly string[] } = RIGHTS[ROUTE_RIGHTS[route]]
  const own = owner.length === 0 ? '' : `In the own project: ${owner.join(', ')}. `
  return `${own}In every project: ${everywhere.join(', ')}.`
}

/** Key in bodies of the objects of a group. */
export const keyOf = (group: string): string => RESOURCES[group]?.resource.singular ?? singularOf(group)
