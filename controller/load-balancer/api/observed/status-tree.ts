import { objectOf } from '../../../api/schema.js'
import { maybeOne } from '../../../database/query.js'
import { sql, trusted } from '../../../database/sql.js'
import { loadBalancer } from '../../objects/load-balancers/resource.js'
import { canMatch, listenersUsingPool } from '../../objects/pools/users.js'
import { missing } from '../../schema/faults.js'
import { parseArguments } from '../../schema/list-query.js'
import { authorise, type Right } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import {
  childStatus,
  loadBalancerReason,
  loadBalancerStatus,
  operatingReason,
  switchOperatingStatus,
} from '../../schema/status.js'
import { canonicalUuid } from '../../schema/values.js'
import { type Call, route } from '../dialect.js'

/** SQL of a list of JSON objects below a load balancer, by default in order of creation. */
const list = (keys: string, from: string, alias: string, order = `${alias}.created_at, ${alias}.id`): string =>
  `(SELECT coalesce(json_agg(json_build_object('id', ${alias}.id, 'name', ${alias}.name,
      'provisioning_status', ${childStatus(alias)}, ${keys}) ORDER BY ${order}), '[]'::json)
    FROM ${from} WHERE `

const operating = (alias: string, label: string): string =>
  `'operating_status', ${alias}.operating_status, 'operating_reason', ${operatingReason(alias, label)}`

const MEMBERS = `${list(`${operating('m', 'member')}, 'address', m.address, 'protocol_port', m.protocol_port`, 'member m', 'm')} m.pool_id = p.id)`

const MONITOR = `(SELECT json_build_object('id', h.id, 'name', h.name, 'type', h.type, 'provisioning_status', ${childStatus('h')},
    'operating_status', ${switchOperatingStatus('h')})
  FROM health_monitor h WHERE h.pool_id = p.id ORDER BY h.change = 'delete', h.created_at DESC LIMIT 1)`

const POOL = `${operating('p', 'pool')}, 'health_monitor', ${MONITOR}, 'members', ${MEMBERS}`

/** The default pool first, then the pools of L7 policies by position. */
const POOLS = `${list(
  POOL,
  `pool p JOIN (SELECT pool_id, min(rank) AS rank
                  FROM (SELECT l.default_pool_id AS pool_id, 0 AS rank
                         UNION ALL SELECT y.redirect_pool_id, y.position FROM l7_policy y
                                    WHERE y.listener_id = l.id AND ${canMatch('y')}) used
                 GROUP BY pool_id) u ON u.pool_id = p.id`,
  'p',
  'u.rank',
)} true)`

const IDLE_POOLS = `(SELECT CASE WHEN json_array_length(idle) > 0 THEN idle END FROM (SELECT ${list(POOL, 'pool p', 'p')} p.load_balancer_id = lb.id
    AND NOT EXISTS (${listenersUsingPool(sql`p.id`).text})) AS idle) i)`

const RULES = `(SELECT coalesce(json_agg(json_build_object('id', r.id, 'type', r.type, 'provisioning_status', ${childStatus('r')},
    'operating_status', ${switchOperatingStatus('r')}) ORDER BY r.created_at, r.id), '[]'::json)
  FROM l7_rule r WHERE r.l7_policy_id = y.id)`

const POLICIES = `${list(
  `'operating_status', ${switchOperatingStatus('y')}, 'action', y.action, 'rules', ${RULES}`,
  'l7_policy y',
  'y',
  `y.position, y.change = 'delete'`,
)} y.listener_id = l.id)`

const LISTENERS = `${list(`${operating('l', 'listener')}, 'pools', ${POOLS}, 'l7policies', ${POLICIES}`, 'listener l', 'l')} l.load_balancer_id = lb.id)`

/**
 * Keys without a value are left out, as Octavia does. A load balancer without listeners and pools has Octavia's five keys
 * only: clients count them.
 */
const STATUSES = `SELECT lb.project_id, json_strip_nulls(json_build_object('statuses', json_build_object('loadbalancer', json_build_object(
    'id', lb.id, 'name', lb.name, 'operating_status', lb.operating_status,
    'operating_reason', CASE WHEN EXISTS (SELECT FROM listener l WHERE l.load_balancer_id = lb.id) THEN ${loadBalancerReason('lb')} END,
    'provisioning_status', ${loadBalancerStatus('lb')}, 'listeners', ${LISTENERS}, 'pools', ${IDLE_POOLS})))
  )::text AS json FROM load_balancer lb WHERE lb.id = `

/** Clients use either name. */
export const statusTrees = ['status', 'statuses'].map(name =>
  route({
    method: 'GET',
    path: `/lbaas/loadbalancers/:id/${name}`,
    group: 'loadbalancers',
    right: 'read',
    summary:
      'Show the statuses of a load balancer and everything below it; its own pools are those that no listener uses',
    status: 200,
    answer: objectOf({ statuses: objectOf({ loadbalancer: { type: 'object' } }) }),
    handle: showStatuses,
  }),
)

/** Shows the statuses of a load balancer and everything below it, as one snapshot in one statement. */
async function showStatuses({ database }: Service, { caller, params, queryString }: Call, right: Right) {
  parseArguments(queryString)
  const id = params.id ?? ''
  const uuid = canonicalUuid(id)
  const row =
    uuid === null
      ? undefined
      : await maybeOne(database, sql<{ project_id: string; json: string }>`${trusted(STATUSES)}${uuid}`)
  if (row === undefined) throw missing(loadBalancer.label, id)
  authorise(caller, right, row.project_id)
  return { status: 200, json: row.json }
}
