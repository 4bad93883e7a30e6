import { randomUUID } from 'node:crypto'
import t from 'tap'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { at } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../../support/clients/load-balancer-api.js'
import { NOWHERE } from '../../../support/database/load-balancer-keys.js'

const admin = tokenOf('load-balancer_admin', FOREIGN)

/** An ACTIVE load balancer with a listener and a pool. */
async function makeTree(api: TestApi) {
  const listeners = [80, 81].map(port => ({
    protocol: 'HTTP',
    protocol_port: port,
    default_pool: { name: `pool-${port}`, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
  }))
  const created = await api.ask('POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: { vip_subnet_id: SUBNET, listeners },
  })
  const id = (...path: (string | number)[]) => String(at(created.body, 'loadbalancer', ...path, 'id'))
  await api.apply(id())
  return { lb: id(), listeners: [id('listeners', 0), id('listeners', 1)], pool: id('pools', 0) }
}

const status = async (api: TestApi, lb: string) =>
  at((await api.ask('GET', `/v2/lbaas/loadbalancers/${lb}`)).body, 'loadbalancer', 'provisioning_status')

async function addAmphora(api: TestApi, columns: Record<string, unknown>): Promise<string> {
  const id = randomUUID()
  await api.database('amphora').insert({ id, status: 'ALLOCATED', role: 'STANDALONE', ...columns })
  return id
}

const marked = (api: TestApi, lb: string) =>
  api
    .database('amphora')
    .where({ load_balancer_id: lb })
    .whereNotNull('replace_generation')
    .orderBy('created_at')
    .pluck<string[]>('id')

t.test('failover of a load balancer', async t => {
  const api = await startTestApi({ providers: ['amphora', 'noop_driver'] })
  t.teardown(api.stop)
  const failOver = (id: string, token = admin) =>
    api.ask('PUT', `/v2.0/lbaas/loadbalancers/${id}/failover`, undefined, token)
  const { lb } = await makeTree(api)
  const backup = await addAmphora(api, { load_balancer_id: lb, role: 'BACKUP' })
  const master = await addAmphora(api, { load_balancer_id: lb, role: 'MASTER' })
  const doomed = await addAmphora(api, { load_balancer_id: lb, role: 'MASTER', status: 'PENDING_DELETE' })

  t.equal((await failOver(lb, tokenOf('member'))).status, 403, 'even the owner may not')
  t.equal((await failOver(NOWHERE)).status, 404)
  t.equal((await failOver('no-id')).status, 404)
  t.same(await marked(api, lb), [])
  const answer = await failOver(lb)
  t.match(answer, { status: 202, text: '' })
  t.equal(await status(api, lb), 'PENDING_UPDATE')
  t.same((await marked(api, lb)).sort(), [backup, master].sort(), 'amphorae being deleted are left alone')
  t.notOk((await marked(api, lb)).includes(doomed))

  await t.test('a second failover spares amphorae that still boot, unless one is alone in its role', async t => {
    const successor = await addAmphora(api, { load_balancer_id: lb, role: 'BACKUP', status: 'BOOTING' })
    t.equal((await failOver(lb)).status, 202)
    t.notOk((await marked(api, lb)).includes(successor))
    await api.database('amphora').where({ id: backup }).update({ status: 'PENDING_DELETE' })
    t.equal((await failOver(lb)).status, 202)
    t.ok((await marked(api, lb)).includes(successor), 'alone in its role, a booting amphora is replaced too')
  })
  await t.test('failover from ERROR', async t => {
    await api.apply(lb)
    await api.fail(lb)
    t.equal(await status(api, lb), 'ERROR')
    t.equal((await failOver(lb)).status, 202)
    t.equal(await status(api, lb), 'PENDING_UPDATE')
  })
  await t.test('failover succeeds without amphorae', async t => {
    const created = await api.ask('POST', '/v2/lbaas/loadbalancers', {
      loadbalancer: { vip_subnet_id: SUBNET, provider: 'noop_driver' },
    })
    const id = String(at(created.body, 'loadbalancer', 'id'))
    await api.apply(id)
    t.equal((await failOver(id)).status, 202)
    t.equal(await status(api, id), 'PENDING_UPDATE')
    await api.apply(id)
    t.equal(await status(api, id), 'ACTIVE')
  })
  await api.ask('DELETE', `/v2/lbaas/loadbalancers/${lb}?cascade=true`)
  t.match(await failOver(lb), {
    status: 409,
    body: { faultstring: `Load Balancer ${lb} is immutable and cannot be updated.` },
  })
})

t.test('amphora failover, configuration and deletion', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const act = (method: 'PUT' | 'DELETE', path: string, token = admin) =>
    api.ask(method, `/v2/octavia/amphorae/${path}`, undefined, token)
  const { lb } = await makeTree(api)
  const backup = await addAmphora(api, { load_balancer_id: lb, role: 'BACKUP', applied_generation: 1 })
  const master = await addAmphora(api, { load_balancer_id: lb, role: 'MASTER', applied_generation: 1 })
  const doomed = await addAmphora(api, { load_balancer_id: lb, role: 'BACKUP', status: 'PENDING_DELETE' })
  const warm = await addAmphora(api, { status: 'READY', role: null })
  const immutable = (id: string) => ({
    status: 409,
    body: { faultcode: 'Client', faultstring: `Amphora ${id} is immutable and cannot be updated.` },
  })

  for (const verb of ['failover', 'config']) {
    t.equal((await act('PUT', `${NOWHERE}/${verb}`)).status, 404, verb)
    t.equal((await act('PUT', `${master}/${verb}`, tokenOf('member'))).status, 403, verb)
    t.match(
      await act('PUT', `${warm}/${verb}`),
      immutable(warm),
      `${verb} of an amphora without a load balancer is refused`,
    )
  }
  await t.test('failover replaces only the named amphora', async t => {
    t.match(await act('PUT', `${master}/failover`), { status: 202, text: '' })
    t.same(await marked(api, lb), [master])
    t.equal(await status(api, lb), 'PENDING_UPDATE')
    t.match(await act('PUT', `${doomed}/failover`), immutable(doomed), 'an amphora being deleted cannot fail over')
    t.equal((await act('PUT', `${master}/failover`)).status, 202, 'a failover can be repeated')
  })
  await t.test('a refused failover changes nothing', async t => {
    await api.apply(lb)
    await act('PUT', `${doomed}/failover`)
    t.equal(await status(api, lb), 'ACTIVE')
  })
  await t.test('config marks the amphora for another push and changes no status', async t => {
    t.match(await act('PUT', `${backup}/config`), { status: 202, text: '' })
    t.match(await api.database('amphora').where({ id: backup }).first(), { applied_generation: 0 })
    t.match(await api.database('amphora').where({ id: master }).first(), { applied_generation: 1 })
    t.ok((await api.database('load_balancer').where({ id: lb }).first()).recheck_at)
    t.equal(await status(api, lb), 'ACTIVE')
  })
  await t.test('only an amphora in ERROR can be deleted', async t => {
    const broken = await addAmphora(api, { status: 'ERROR', role: null })
    const brokenInUse = await addAmphora(api, { load_balancer_id: lb, role: null, status: 'ERROR' })
    const statusOf = async (id: string) => (await api.database('amphora').where({ id }).first()).status
    for (const id of [master, warm, doomed]) t.match(await act('DELETE', id), immutable(id))
    t.equal((await act('DELETE', NOWHERE)).status, 404)
    t.equal((await act('DELETE', broken, tokenOf('member'))).status, 403)
    t.match(await act('DELETE', broken), { status: 204, text: '' })
    t.equal(await statusOf(broken), 'PENDING_DELETE')
    t.equal(await status(api, lb), 'ACTIVE')
    t.equal((await act('DELETE', brokenInUse)).status, 204)
    t.equal(await statusOf(brokenInUse), 'PENDING_DELETE')
    t.equal(await status(api, lb), 'PENDING_UPDATE', 'its worker removes the amphora')
  })
  await t.test('failover and config are refused while the load balancer is being deleted', async t => {
    await api.ask('DELETE', `/v2/lbaas/loadbalancers/${lb}?cascade=true`)
    t.equal((await act('PUT', `${backup}/failover`)).status, 409)
    t.equal((await act('PUT', `${backup}/config`)).status, 409)
  })
  await t.test('other methods are 405', async t => {
    t.equal((await act('PUT', backup)).status, 405)
    t.equal((await api.ask('POST', '/v2/octavia/amphorae', {}, admin)).status, 405)
  })
})

t.test('statistics', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const { lb, listeners, pool } = await makeTree(api)
  const stats = (path: string, token = admin) => api.ask('GET', `/v2/${path}/stats`, undefined, token)
  const zeros = { bytes_in: 0, bytes_out: 0, active_connections: 0, total_connections: 0, request_errors: 0 }
  const live = await addAmphora(api, { load_balancer_id: lb })
  t.same((await stats(`lbaas/pools/${pool}`, tokenOf('reader'))).body, { stats: zeros })
  t.equal((await stats(`octavia/amphorae/${live}`)).status, 404, 'no statistics before the first report')
  const row = (of: object, amphora: string, active: number) => ({
    ...of,
    amphora_id: amphora,
    epoch: 'e',
    base_bytes_in: 100,
    bytes_in: 1,
    bytes_out: 2,
    total_connections: 3,
    request_errors: 4,
    active_connections: active,
  })
  const gone = randomUUID()
  const [first, second] = listeners
  await api
    .database('pool_statistics')
    .insert([
      row({ pool_id: pool, listener_id: first }, live, 5),
      row({ pool_id: pool, listener_id: second }, live, 6),
      row({ pool_id: pool, listener_id: second }, gone, 7),
    ])
  await api
    .database('listener_statistics')
    .insert([
      row({ listener_id: second }, live, 8),
      row({ listener_id: first }, live, 9),
      row({ listener_id: first }, gone, 10),
    ])
  await t.test('pool statistics add up all listeners and amphorae, including removed ones', async t => {
    const { body } = await stats(`lbaas/pools/${pool}`, tokenOf('reader'))
    t.same(body, {
      stats: { bytes_in: 303, bytes_out: 6, total_connections: 9, request_errors: 12, active_connections: 11 },
    })
    t.equal((await stats(`lbaas/pools/${NOWHERE}`)).status, 404)
    t.equal((await stats(`lbaas/pools/${pool}`, tokenOf('member', FOREIGN))).status, 403)
  })
  await t.test('amphora statistics have one entry per listener', async t => {
    const entry = { bytes_in: 101, bytes_out: 2, total_connections: 3, request_errors: 4 }
    const common = { ...entry, id: live, loadbalancer_id: lb }
    t.same((await stats(`octavia/amphorae/${live}`)).body, {
      amphora_stats: [
        { ...common, listener_id: first, active_connections: 9 },
        { ...common, listener_id: second, active_connections: 8 },
      ],
    })
    t.equal((await stats(`octavia/amphorae/${gone}`)).status, 404, 'a removed amphora has no statistics')
    t.equal((await stats(`octavia/amphorae/${live}`, tokenOf('member', OWN))).status, 403)
  })
})
