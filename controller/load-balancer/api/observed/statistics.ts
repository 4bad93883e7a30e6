import { objectOf, ref } from '../../../api/schema.js'
import { maybeOne } from '../../../database/query.js'
import { sql, trusted } from '../../../database/sql.js'
import { amphora } from '../../objects/amphorae/resource.js'
import { listener } from '../../objects/listeners/resource.js'
import { loadBalancer } from '../../objects/load-balancers/resource.js'
import { pool } from '../../objects/pools/resource.js'
import { missing } from '../../schema/faults.js'
import { parseArguments } from '../../schema/list-query.js'
import type { Resource } from '../../schema/resource.js'
import { authorise, type Right } from '../../schema/rights.js'
import { wrapped } from '../../schema/select.js'
import type { Service } from '../../schema/service.js'
import { canonicalUuid } from '../../schema/values.js'
import { type Call, route } from '../dialect.js'

const COUNTERS = ['bytes_in', 'bytes_out', 'total_connections', 'request_errors'] as const

/** Of a load balancer whose provider counts nothing. */
const NO_TOTALS = JSON.stringify(Object.fromEntries([...COUNTERS, 'active_connections'].map(name => [name, null])))

/**
 * Totals since the listeners or pools were created, across all amphorae. Active connections count only amphorae
 * in service.
 */
const TOTALS = `json_build_object(${[
  ...COUNTERS.map(counter => `'${counter}', coalesce(sum(s.base_${counter} + s.${counter}), 0)::bigint`),
  `'active_connections', coalesce(sum(s.active_connections) FILTER (WHERE a.status = 'ALLOCATED'), 0)::bigint`,
].join(', ')})::text`

const totalsOf = (statistics: string, condition: string): string =>
  `(SELECT ${TOTALS} FROM ${statistics} s LEFT JOIN amphora a ON a.id = s.amphora_id WHERE ${condition})`

const LOAD_BALANCER = `SELECT o.project_id, o.provider,
  ${totalsOf('listener_statistics', 's.listener_id IN (SELECT l.id FROM listener l WHERE l.load_balancer_id = o.id)')} AS json
  FROM load_balancer o WHERE o.id = `

const PROVIDER = '(SELECT lb.provider FROM load_balancer lb WHERE lb.id = o.load_balancer_id) AS provider'

const LISTENER = `SELECT o.project_id, ${PROVIDER}, ${totalsOf('listener_statistics', 's.listener_id = o.id')} AS json
  FROM listener o WHERE o.id = `

/** Traffic of a pool through all current and former listeners. */
const POOL = `SELECT o.project_id, ${PROVIDER}, ${totalsOf('pool_statistics', 's.pool_id = o.id')} AS json FROM pool o WHERE o.id = `

/** One entry per listener; no row before the first report. */
const AMPHORA = `SELECT lb.project_id, json_agg(json_build_object(
    'id', o.id, 'listener_id', l.id, 'loadbalancer_id', l.load_balancer_id, 'active_connections', s.active_connections,
    ${COUNTERS.map(counter => `'${counter}', s.base_${counter} + s.${counter}`).join(', ')}) ORDER BY l.created_at, l.id)::text AS json
  FROM amphora o
  JOIN load_balancer lb ON lb.id = o.load_balancer_id
  JOIN listener l ON l.load_balancer_id = lb.id
  JOIN listener_statistics s ON s.listener_id = l.id AND s.amphora_id = o.id
 WHERE o.id = `

const totalsRoute = (group: string, { label }: Resource, select: string) =>
  route({
    method: 'GET',
    path: `/lbaas/${group}/:id/stats`,
    group,
    right: 'read',
    summary: `Show the traffic counters of a ${label.toLowerCase()}`,
    status: 200,
    answer: objectOf({ stats: ref('statistics') }),
    handle: (service, call, right) => answer(service, call, right, { label, select, key: 'stats' }),
  })

export const loadBalancerStatistics = totalsRoute('loadbalancers', loadBalancer, LOAD_BALANCER)
export const listenerStatistics = totalsRoute('listeners', listener, LISTENER)
export const poolStatistics = totalsRoute('pools', pool, POOL)

export const amphoraStatistics = route({
  method: 'GET',
  path: '/octavia/amphorae/:id/stats',
  group: 'amphorae',
  right: 'admin',
  summary: 'Show the traffic counters of an amphora, one entry per listener',
  status: 200,
  answer: objectOf({ amphora_stats: { type: 'array', items: { type: 'object' } } }),
  handle: async (service, call, right) => {
    // Checked first, so that callers without the right cannot learn which amphorae have statistics.
    authorise(call.caller, right, null)
    const query = { label: amphora.label, select: AMPHORA, key: 'amphora_stats', group: ' GROUP BY lb.project_id' }
    return answer(service, call, right, query)
  },
})

/** @throws ApiError 403, or 404 when `select` returns no row */
async function answer(
  { database, providers }: Service,
  { caller, params, queryString }: Call,
  right: Right,
  { label, select, key, group = '' }: { label: string; select: string; key: string; group?: string },
) {
  parseArguments(queryString)
  const id = params.id ?? ''
  const uuid = canonicalUuid(id)
  const row =
    uuid === null
      ? undefined
      : await maybeOne(
          database,
          sql<{ project_id: string; provider?: string; json: string }>`${trusted(select)}${uuid}${trusted(group)}`,
        )
  if (row === undefined) throw missing(label, id)
  authorise(caller, right, row.project_id)
  const isCounted = providers.find(({ name }) => name === row.provider)?.countsTraffic ?? true
  return { status: 200, json: wrapped(key, isCounted ? row.json : NO_TOTALS) }
}
