import { jsonAnswer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { openRoute, route } from '../dialect.js'

const root = '/compute/v2.1'
const common = { method: 'GET', right: 'see the service', group: 'compute', status: 200 } as const

/** The quantities that a compute service limits. */
const LIMITS = [
  ...['maxTotalInstances', 'totalInstancesUsed', 'maxTotalCores', 'totalCoresUsed', 'maxTotalRAMSize', 'totalRAMUsed'],
  ...['maxServerGroups', 'totalServerGroupsUsed', 'maxServerGroupMembers', 'maxServerMeta', 'maxTotalKeypairs'],
]

/**
 * What a compute service without servers answers. Horizon's form for load balancers does not finish loading without a
 * list of servers, and its first page asks for limits and usage. The catalogue names these routes only if an operator adds them.
 */
export const computeRoutes = [
  openRoute({
    ...{ method: 'GET', path: root, group: 'compute', status: 200 },
    summary: 'Show the version of the compute API',
    answer: objectOf({ version: ref('version') }),
    handle: async (_service, { base }) => {
      const links = [{ rel: 'self', href: `${base}${root}/` }]
      const version = { id: 'v2.1', status: 'CURRENT', version: '2.1', min_version: '2.1', links }
      return jsonAnswer(200, { version })
    },
  }),
  ...['servers', 'servers/detail'].map(path =>
    route({
      ...common,
      path: `${root}/${path}`,
      summary: 'List servers: always empty',
      answer: objectOf({ servers: { type: 'array', maxItems: 0 } }),
      handle: async () => jsonAnswer(200, { servers: [] }),
    }),
  ),
  route({
    ...common,
    path: `${root}/limits`,
    summary: 'Show the limits of the project: all are 0',
    answer: objectOf({ limits: objectOf({ rate: { type: 'array', maxItems: 0 }, absolute: { type: 'object' } }) }),
    handle: async () =>
      jsonAnswer(200, { limits: { rate: [], absolute: Object.fromEntries(LIMITS.map(name => [name, 0])) } }),
  }),
  route({
    ...common,
    path: `${root}/os-simple-tenant-usage/:project`,
    summary: 'Show what the servers of a project have used: always nothing',
    answer: objectOf({ tenant_usage: { type: 'object' } }),
    handle: async () => jsonAnswer(200, { tenant_usage: {} }),
  }),
]
