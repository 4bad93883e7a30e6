import t from 'tap'
import type { Database } from '../../../controller/database/connection.js'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'

const ROWS = 20_000
const PAGE = 10
/** The number of the pool and policy that have many children; not on any page read below. */
const CROWDED = 15_002
/** Rows that reading one page may touch over its whole plan: children of its rows, index keys, the marker. */
const MAX_ROWS = 40 * PAGE

/**
 * Many load balancers, listeners, pools, monitors, policies and amphorae, half of each in either of two
 * projects.
 */
async function fill(database: Database): Promise<void> {
  const id = (kind: string, number = 'n') =>
    `('00000000-0000-4000-800${kind}-' || lpad(to_hex(${number}), 12, '0'))::uuid`
  const project = `CASE WHEN n % 2 = 0 THEN '${OWN}' ELSE '${FOREIGN}' END`
  const created = `now() - (${ROWS} - n) * interval '1 second'`
  // Every second member and rule has its own parent; the others share one pool and policy.
  const crowd = `CASE WHEN n % 2 = 0 THEN ${CROWDED} ELSE n END`
  const series = `FROM generate_series(1, ${ROWS}) n`
  const below = `${id('0')}, ${project}, 1, ${created}`
  const columns = 'load_balancer_id, project_id, generation, created_at'
  for (const sql of [
    `INSERT INTO load_balancer (id, project_id, created_at, provider, topology, vip_address, owns_vip_port)
     SELECT ${id('0')}, ${project}, ${created}, 'amphora', 'SINGLE', '203.0.113.1', true ${series}`,
    `INSERT INTO pool (id, ${columns}, protocol, lb_algorithm) SELECT ${id('1')}, ${below}, 'HTTP', 'ROUND_ROBIN' ${series}`,
    `INSERT INTO listener (id, ${columns}, protocol, transport, protocol_port, default_pool_id)
     SELECT ${id('2')}, ${below}, 'HTTP', 'tcp', 80, ${id('1')} ${series}`,
    `INSERT INTO health_monitor (id, ${columns}, pool_id, type, delay, timeout, max_retries, max_retries_down)
     SELECT ${id('3')}, ${below}, ${id('1')}, 'TCP', 1, 1, 1, 1 ${series}`,
    `INSERT INTO l7_policy (id, ${columns}, listener_id, action, position)
     SELECT ${id('4')}, ${below}, ${id('2')}, 'REJECT', 1 ${series}`,
    `INSERT INTO member (id, ${columns}, pool_id, server_number, address, protocol_port)
     SELECT ${id('5')}, ${id('0', crowd)}, '${OWN}', 1, ${created}, ${id('1', crowd)}, n, '10.0.0.1', n ${series}`,
    `INSERT INTO l7_rule (id, ${columns}, l7_policy_id, type, compare_type, value)
     SELECT ${id('6')}, ${id('0', crowd)}, '${OWN}', 1, ${created}, ${id('4', crowd)}, 'PATH', 'EQUAL_TO', '/' ${series}`,
    `INSERT INTO amphora (id, load_balancer_id, status, created_at) SELECT ${id('7')}, ${id('0')}, 'ALLOCATED', ${created} ${series}`,
    `INSERT INTO listener_statistics (listener_id, amphora_id, epoch) SELECT ${id('2')}, ${id('7')}, 'e' ${series}`,
    `INSERT INTO pool_statistics (pool_id, listener_id, amphora_id, epoch) SELECT ${id('1')}, ${id('2')}, ${id('7')}, 'e' ${series}`,
  ]) {
    await database.raw(sql)
  }
  for (const table of [
    'load_balancer',
    'pool',
    'listener',
    'health_monitor',
    'l7_policy',
    'member',
    'l7_rule',
    'amphora',
    'listener_statistics',
    'pool_statistics',
  ]) {
    await database.raw('ANALYZE ??', [table])
  }
}

type Plan = { 'Node Type': string; 'Actual Rows': number; 'Actual Loops': number; Plans?: Plan[] } & Record<
  string,
  unknown
>

/** Rows that each node of a plan returned or discarded, over all its loops. */
function rowsIn(plan: Plan): { node: string; rows: number }[] {
  const removed = Number(plan['Rows Removed by Filter'] ?? 0) + Number(plan['Rows Removed by Join Filter'] ?? 0)
  const node = `${plan['Node Type']} ${plan['Relation Name'] ?? plan['Index Name'] ?? ''}`
  const rows = (plan['Actual Rows'] + removed) * plan['Actual Loops']
  return [{ node, rows }, ...(plan.Plans ?? []).flatMap(rowsIn)]
}

type Statement = { sql: string; options: { values: unknown[] } }

/** Reruns the statements of a request with EXPLAIN to see what they read. */
async function costOf(
  api: TestApi,
  path: string,
  token: string,
): Promise<{ status: number; node: string; rows: number }> {
  const statements: Statement[] = []
  const note = (statement: Statement) => statements.push(statement)
  api.database.on('query', note)
  const { status } = await api.ask('GET', path, undefined, token)
  api.database.removeListener('query', note)
  const handled: { node: string; rows: number }[] = []
  for (const { sql, options } of statements) {
    const { values } = options
    const { rows } = await api.database.raw(sql).options({ text: `EXPLAIN (ANALYZE, FORMAT JSON) ${sql}`, values })
    handled.push(...rowsIn(rows[0]['QUERY PLAN'][0].Plan))
  }
  return { status, ...handled.reduce((most, one) => (one.rows > most.rows ? one : most), { node: 'none', rows: 0 }) }
}

t.test('reading a page among thousands of objects touches only that page’s rows', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  await fill(api.database)
  const idAt = (kind: string, n: number) => `00000000-0000-4000-800${kind}-${n.toString(16).padStart(12, '0')}`
  const lists: [path: string, kind: string][] = [
    ['lbaas/loadbalancers', '0'],
    ['lbaas/pools', '1'],
    ['lbaas/listeners', '2'],
    ['lbaas/healthmonitors', '3'],
    ['lbaas/l7policies', '4'],
    [`lbaas/pools/${idAt('1', CROWDED)}/members`, '5'],
    [`lbaas/l7policies/${idAt('4', CROWDED)}/rules`, '6'],
    ['octavia/amphorae', '7'],
  ]
  const middle = ROWS / 2
  for (const [path, kind] of lists) {
    for (const role of path.startsWith('octavia') ? ['admin'] : ['member', 'admin']) {
      for (const query of ['', `&marker=${idAt(kind, middle)}`, `&marker=${idAt(kind, middle)}&page_reverse=true`]) {
        const { status, node, rows } = await costOf(api, `/v2/${path}?limit=${PAGE}${query}`, tokenOf(role))
        t.equal(status, 200)
        t.ok(rows > 0 && rows <= MAX_ROWS, `${role} ${path} ${query}: ${rows} rows in ${node}`)
      }
    }
  }
  const narrow: [string, string][] = [
    ['lbaas/listeners', `loadbalancer_id=${idAt('0', middle)}`],
    ['lbaas/listeners', `default_pool_id=${idAt('1', middle)}`],
    ['lbaas/pools', `loadbalancer_id=${idAt('0', middle)}`],
    ['lbaas/pools', `healthmonitor_id=${idAt('3', middle)}`],
    ['lbaas/healthmonitors', `pool_id=${idAt('1', middle)}`],
    ['lbaas/l7policies', `listener_id=${idAt('2', middle)}`],
    ['octavia/amphorae', `loadbalancer_id=${idAt('0', middle)}`],
  ]
  for (const [path, query] of narrow) {
    const { status, node, rows } = await costOf(api, `/v2/${path}?limit=${PAGE}&${query}`, tokenOf('admin'))
    t.equal(status, 200)
    t.ok(rows > 0 && rows <= MAX_ROWS, `${path} ${query}: ${rows} rows in ${node}`)
  }
  const counted: [string, string][] = [
    ['lbaas/loadbalancers', '0'],
    ['lbaas/pools', '1'],
    ['lbaas/listeners', '2'],
    ['octavia/amphorae', '7'],
  ]
  for (const [path, kind] of counted) {
    const { status, node, rows } = await costOf(api, `/v2/${path}/${idAt(kind, middle)}/stats`, tokenOf('admin'))
    t.equal(status, 200)
    t.ok(rows > 0 && rows <= MAX_ROWS, `statistics of ${path}: ${rows} rows in ${node}`)
  }
})
