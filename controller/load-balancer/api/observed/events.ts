import { objectOf, ref } from '../../../api/schema.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { listParameters } from '../../description/parameters.js'
import { event } from '../../objects/events/resource.js'
import { missing } from '../../schema/faults.js'
import { listPage } from '../../schema/list.js'
import { type ListQuery, parseListQuery } from '../../schema/list-query.js'
import { authorise, type Right } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import { canonicalUuid } from '../../schema/values.js'
import { type Call, route } from '../dialect.js'
import { pageAnswer } from '../object-routes.js'

export const eventRoutes = [
  route({
    method: 'GET',
    path: '/lbaas/loadbalancers/:id/events',
    group: 'loadbalancers',
    right: 'read',
    summary: 'List the events of a load balancer, newest first',
    status: 200,
    parameters: listParameters(event),
    answer: objectOf({ events: { type: 'array', items: ref('event') }, events_links: ref('links') }),
    handle: list,
  }),
]

const NEWEST_FIRST: ListQuery['sort'] = [{ sql: 'o.created_at', descending: true }]

async function list({ database, config }: Service, { caller, params, queryString, url }: Call, right: Right) {
  const query = parseListQuery(event, queryString, config)
  const id = canonicalUuid(params.id)
  const found =
    id === null
      ? undefined
      : await maybeOne(database, sql<{ project_id: string }>`SELECT project_id FROM load_balancer WHERE id = ${id}`)
  if (id === null || found === undefined) throw missing('Load Balancer', params.id ?? '')
  authorise(caller, right, found.project_id)
  const sort = query.sort.length === 0 ? NEWEST_FIRST : query.sort
  const scope = sql`o.load_balancer_id = ${id}`
  return pageAnswer(event, await listPage(database, event, { query: { ...query, sort }, scope, url }))
}
