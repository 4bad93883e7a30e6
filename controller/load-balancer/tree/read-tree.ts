import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { sql, trusted } from '../../database/sql.js'
import type { LoadBalancerTree } from './tree.js'

/**
 * The whole tree of a load balancer, what is under deletion included, as one consistent snapshot: one statement.
 * @returns null when it is gone
 */
export async function readTree(database: Knex, loadBalancerId: string): Promise<LoadBalancerTree | null> {
  const row = await maybeOne(database, sql<{ tree: LoadBalancerTree }>`${SELECT_TREE} WHERE lb.id = ${loadBalancerId}`)
  return row?.tree ?? null
}

/** A JSON list of objects, in the order in which they were made. */
const list = (object: string, from: string, alias: string): string =>
  `(SELECT coalesce(json_agg(${object} ORDER BY ${alias}.created_at, ${alias}.id), '[]'::json) FROM ${from})`

const MEMBER = `json_build_object(
  'id', m.id, 'change', m.change, 'serverNumber', m.server_number, 'adminStateUp', m.admin_state_up,
  'isDown', m.operating_status = 'ERROR', 'address', m.address, 'protocolPort', m.protocol_port, 'weight', m.weight, 'backup', m.backup,
  'subnetId', m.subnet_id, 'monitorAddress', m.monitor_address, 'monitorPort', m.monitor_port)`

const HEALTH_MONITOR = `json_build_object(
  'id', h.id, 'change', h.change, 'adminStateUp', h.admin_state_up, 'type', h.type, 'delay', h.delay, 'timeout', h.timeout,
  'maxRetries', h.max_retries, 'maxRetriesDown', h.max_retries_down, 'httpMethod', h.http_method, 'urlPath', h.url_path,
  'expectedCodes', h.expected_codes, 'httpVersion', h.http_version, 'domainName', h.domain_name)`

// A pool may have one monitor that lives beside others that are on their way out; the living one counts.
const SESSION_PERSISTENCE = `CASE WHEN p.session_persistence IS NOT NULL THEN json_build_object(
  'type', p.session_persistence->>'type', 'cookieName', p.session_persistence->>'cookie_name',
  'persistenceTimeout', (p.session_persistence->>'persistence_timeout')::int,
  'persistenceGranularity', p.session_persistence->>'persistence_granularity') END`

const POOL = `json_build_object(
  'id', p.id, 'change', p.change, 'adminStateUp', p.admin_state_up, 'protocol', p.protocol, 'lbAlgorithm', p.lb_algorithm,
  'sessionPersistence', ${SESSION_PERSISTENCE}, 'deregistrationDelay', p.deregistration_delay,
  'healthMonitor', (SELECT ${HEALTH_MONITOR} FROM health_monitor h WHERE h.pool_id = p.id
                     ORDER BY h.change = 'delete', h.created_at DESC LIMIT 1),
  'members', (SELECT coalesce(json_agg(${MEMBER} ORDER BY m.server_number), '[]'::json) FROM member m WHERE m.pool_id = p.id))`

const L7_RULE = `json_build_object(
  'id', r.id, 'change', r.change, 'adminStateUp', r.admin_state_up, 'type', r.type, 'compareType', r.compare_type, 'key', r.key,
  'value', r.value, 'invert', r.invert)`

const L7_POLICY = `json_build_object(
  'id', y.id, 'change', y.change, 'adminStateUp', y.admin_state_up, 'action', y.action, 'position', y.position,
  'redirectPoolId', y.redirect_pool_id, 'redirectUrl', y.redirect_url, 'redirectPrefix', y.redirect_prefix,
  'redirectHttpCode', y.redirect_http_code,
  'rules', ${list(L7_RULE, 'l7_rule r WHERE r.l7_policy_id = y.id', 'r')})`

const LISTENER = `json_build_object(
  'id', l.id, 'change', l.change, 'adminStateUp', l.admin_state_up, 'protocol', l.protocol, 'protocolPort', l.protocol_port,
  'connectionLimit', l.connection_limit, 'defaultPoolId', l.default_pool_id, 'insertHeaders', l.insert_headers,
  'timeoutClientData', l.timeout_client_data, 'timeoutMemberConnect', l.timeout_member_connect,
  'timeoutMemberData', l.timeout_member_data, 'timeoutTcpInspect', l.timeout_tcp_inspect,
  'allowedCidrs', l.allowed_cidrs,
  'l7Policies', (SELECT coalesce(json_agg(${L7_POLICY} ORDER BY y.position, y.id), '[]'::json)
                   FROM l7_policy y WHERE y.listener_id = l.id))`

const TREE = `json_build_object(
  'id', lb.id, 'projectId', lb.project_id, 'name', lb.name, 'adminStateUp', lb.admin_state_up, 'provider', lb.provider,
  'topology', lb.topology, 'generation', lb.generation, 'appliedGeneration', lb.applied_generation, 'change', lb.change,
  'vip', json_build_object('address', lb.vip_address, 'subnetId', lb.vip_subnet_id, 'networkId', lb.vip_network_id,
                           'portId', lb.vip_port_id, 'ownsPort', lb.owns_vip_port),
  'additionalVips', (SELECT coalesce(json_agg(json_build_object('address', vip->>'ip_address', 'subnetId', vip->>'subnet_id')), '[]'::json)
                       FROM jsonb_array_elements(lb.additional_vips) vip),
  'listeners', ${list(LISTENER, 'listener l WHERE l.load_balancer_id = lb.id', 'l')},
  'pools', ${list(POOL, 'pool p WHERE p.load_balancer_id = lb.id', 'p')})`

/** Prepared: to plan it takes ten times as long as to run it. */
const SELECT_TREE = trusted(`SELECT ${TREE} AS tree FROM load_balancer lb`)
