import type { Database } from '../database/connection.js'
import { missing } from './faults.js'
import { parseArguments } from './list-query.js'
import { listener } from './listeners/resource.js'
import { loadBalancer } from './load-balancers/resource.js'
import { authorise } from './rights.js'
import { type Answer, type Call, type Service, wrapped } from './routes.js'
import { canonicalUuid } from './values.js'

/**
 * Totals since the listeners were made, whichever amphorae carried them; connections that are open now count only on amphorae that are in
 * service.
 */
const TOTALS = `json_build_object(
  'bytes_in', coalesce(sum(s.base_bytes_in + s.bytes_in), 0)::bigint,
  'bytes_out', coalesce(sum(s.base_bytes_out + s.bytes_out), 0)::bigint,
  'active_connections', coalesce(sum(s.active_connections) FILTER (WHERE a.status = 'ALLOCATED'), 0)::bigint,
  'total_connections', coalesce(sum(s.base_total_connections + s.total_connections), 0)::bigint,
  'request_errors', coalesce(sum(s.base_request_errors + s.request_errors), 0)::bigint)::text`

const totalsOf = (listeners: string): string =>
  `(SELECT ${TOTALS} FROM listener l JOIN listener_statistics s ON s.listener_id = l.id LEFT JOIN amphora a ON a.id = s.amphora_id WHERE ${listeners})`

export function loadBalancerStatistics({ database }: Service, call: Call): Promise<Answer> {
  const select = `SELECT o.project_id, ${totalsOf('l.load_balancer_id = o.id')} AS totals FROM load_balancer o WHERE o.id = ?`
  return answer(database, call, loadBalancer.label, select)
}

export function listenerStatistics({ database }: Service, call: Call): Promise<Answer> {
  const select = `SELECT o.project_id, ${totalsOf('l.id = o.id')} AS totals FROM listener o WHERE o.id = ?`
  return answer(database, call, listener.label, select)
}

async function answer(database: Database, { caller, right, params, queryString }: Call, label: string, select: string) {
  parseArguments(queryString)
  const id = params.id ?? ''
  const uuid = canonicalUuid(id)
  const { rows } = uuid === null ? { rows: [] } : await database.raw(select, [uuid])
  const [row] = rows as { project_id: string; totals: string }[]
  if (row === undefined) throw missing(label, id)
  authorise(caller, right, row.project_id)
  return { status: 200, json: wrapped('stats', row.totals) }
}
