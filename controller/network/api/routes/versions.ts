import { jsonAnswer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { openRoute, route } from '../dialect.js'

const RESOURCES = ['network', 'subnet', 'port'] as const

/** The version documents, through which clients discover the API. */
export const versionRoutes = [
  openRoute({
    ...{ method: 'GET', path: '/', group: 'service', status: 200 },
    summary: 'List the versions of the API',
    answer: objectOf({ versions: { type: 'array', items: ref('version') } }),
    handle: async (_service, { base }) => {
      const links = [{ rel: 'self', href: `${base}/v2.0/` }]
      return jsonAnswer(200, { versions: [{ id: 'v2.0', status: 'CURRENT', links }] })
    },
  }),
  route({
    ...{ method: 'GET', path: '/v2.0', right: 'see the service', group: 'extensions', status: 200 },
    summary: 'List the resources of the API',
    answer: objectOf({ resources: { type: 'array', items: { type: 'object' } } }),
    handle: async (_service, { base }) =>
      jsonAnswer(200, {
        resources: RESOURCES.map(name => ({
          name,
          collection: `${name}s`,
          links: [{ rel: 'self', href: `${base}/v2.0/${name}s` }],
        })),
      }),
  }),
]
