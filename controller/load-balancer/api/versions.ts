import { jsonAnswer } from '../../api/answer.js'
import { objectOf } from '../../api/schema.js'
import { openRoute, plainRoute } from './dialect.js'
import { VERSION_NODE } from './paths.js'

/** Dates of the minor versions. Clients choose features by the newest version. */
const UPDATES = [
  '2016-12-11T00:00:00Z',
  '2018-04-20T00:00:00Z',
  '2018-07-31T00:00:00Z',
  '2018-12-18T00:00:00Z',
  '2018-12-19T00:00:00Z',
  '2019-01-21T00:00:00Z',
  '2019-01-25T00:00:00Z',
  '2018-01-25T12:00:00Z',
  '2019-02-12T00:00:00Z',
  '2019-03-04T00:00:00Z',
  '2019-03-05T00:00:00Z',
  '2019-06-24T00:00:00Z',
  '2019-09-11T00:00:00Z',
  '2019-09-13T00:00:00Z',
  '2019-11-10T00:00:00Z',
  '2020-03-10T00:00:00Z',
  '2020-03-15T00:00:00Z',
  '2020-04-29T00:00:00Z',
  '2020-04-29T01:00:00Z',
  '2020-05-12T00:00:00Z',
  '2020-08-02T00:00:00Z',
  '2020-09-03T00:00:00Z',
  '2020-09-04T00:00:00Z',
  '2020-09-07T00:00:00Z',
  '2020-10-15T00:00:00Z',
  '2021-10-02T00:00:00Z',
  '2022-08-29T00:00:00Z',
  '2023-05-05T00:00:00Z',
  '2023-11-08T00:00:00Z',
  '2024-10-15T00:00:00Z',
  '2025-02-26T00:00:00Z',
] as const

/** Id of the newest minor version. */
export const NEWEST_VERSION = `v2.${UPDATES.length - 1}`

/** @param base URL of the root as the client reaches it, without a trailing slash */
const versionDocument = (base: string) => ({
  versions: UPDATES.map((updated, minor) => ({
    id: `v2.${minor}`,
    status: minor === UPDATES.length - 1 ? 'CURRENT' : 'SUPPORTED',
    updated,
    links: [{ href: `${base}/v2`, rel: 'self' }],
  })),
})

export const versionRoutes = [
  openRoute({
    ...{ method: 'GET', path: '/', group: 'service', status: 200 },
    summary: 'List the API versions',
    answer: objectOf({ versions: { type: 'array', items: { type: 'object' } } }),
    handle: async (_service, { base }) => jsonAnswer(200, versionDocument(base)),
  }),
  plainRoute({
    ...{ method: 'GET', path: VERSION_NODE, group: 'service', right: 'any token', status: 200 },
    summary: 'Show the name of the version',
    answer: { type: 'string', const: 'v2' },
    handle: async () => jsonAnswer(200, 'v2'),
  }),
]
