import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Call, Routes, Service } from '../api/routes.js'
import { derived } from '../schema/attributes.js'
import { missing } from '../schema/faults.js'
import { listPage } from '../schema/list.js'
import { type ListQuery, parseListQuery } from '../schema/list-query.js'
import { pageAnswer } from '../schema/read-routes.js'
import { defineResource } from '../schema/resource.js'
import { authorise } from '../schema/rights.js'
import { timestamp } from '../schema/status.js'
import { canonicalUuid } from '../schema/values.js'

/** What was asked of a load balancer, by whom, and what became of it. */
export const event = defineResource({
  label: 'Event',
  singular: 'event',
  plural: 'events',
  table: 'load_balancer_event',
  source: 'load_balancer_event o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  project: 'lb.project_id',
  tagged: false,
  attributes: {
    id: derived('uuid', 'o.id'),
    loadbalancer_id: derived('uuid', 'o.load_balancer_id'),
    kind: derived('text', 'o.kind'),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    count: derived('integer', 'o.count'),
    generation: derived('integer', 'o.generation'),
    action: derived('text', `o.detail->>'action'`),
    object_type: derived('text', `o.detail->>'object_type'`),
    object_id: derived('text', `o.detail->>'object_id'`),
    changes: derived('json', `o.detail->'changes'`),
    user_id: derived('text', `o.detail->>'user_id'`),
    user_name: derived('text', `o.detail->>'user_name'`),
    user_project_id: derived('text', `o.detail->>'project_id'`),
    request_id: derived('text', `o.detail->>'request_id'`),
    milliseconds: derived('integer', `(o.detail->>'milliseconds')::integer`),
    amphorae: derived('json', `coalesce(o.detail->'amphorae', '[]'::jsonb)`),
    fault: derived('json', `o.detail->'fault'`),
    repair: derived('json', `o.detail->'repair'`),
  },
})

export function historyRoutes(service: Service): Routes {
  return { 'GET /lbaas/loadbalancers/:id/events': call => list(service, call) }
}

const NEWEST_FIRST: ListQuery['sort'] = [{ sql: 'o.created_at', descending: true }]

async function list({ database, config }: Service, { caller, right, params, queryString, url }: Call) {
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
