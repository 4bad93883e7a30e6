import { jsonAnswer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { openRoute, route } from '../dialect.js'
import { collectionPath, pluralOf, SINGULARS } from '../kinds.js'

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
        resources: SINGULARS.map(name => ({
          name,
          collection: pluralOf(name),
          links: [{ rel: 'self', href: `${base}${collectionPath(name)}` }],
        })),
      }),
  }),
]
