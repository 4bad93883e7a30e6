import { randomUUID } from 'node:crypto'
import t from 'tap'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { at, idIn, type Json, type Reply } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'

const QUOTAS = '/v2/lbaas/quotas'
const DEFAULTS = {
  loadbalancer: 100,
  listener: 500,
  pool: 500,
  member: 5000,
  healthmonitor: 500,
  l7policy: 1000,
  l7rule: 5000,
}
/** Limits as answers write them. */
const spelt = (limits: Record<string, number | null>) => ({
  ...limits,
  load_balancer: limits.loadbalancer,
  health_monitor: limits.healthmonitor,
})
const limitsOf = (project: string, limits: Record<string, number | null> = {}) => ({
  project_id: project,
  tenant_id: project,
  ...spelt({ ...DEFAULTS, ...limits }),
})
const admin = tokenOf('load-balancer_quota_admin', FOREIGN)

const setQuota = async (api: TestApi, quota: Record<string, unknown>, project = OWN) =>
  api.ask('PUT', `${QUOTAS}/${project}`, { quota }, admin)

async function inUse(api: TestApi, project = OWN): Promise<Record<string, unknown>> {
  const { body } = await api.ask('GET', `${QUOTAS}/${project}/usage`, undefined, admin)
  const usage = body.quota_usage as Json
  return Object.fromEntries(Object.keys(DEFAULTS).map(name => [name, at(usage, name, 'in_use')]))
}

const createBalancer = (api: TestApi, body: object = {}) =>
  api.ask('POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: { vip_subnet_id: SUBNET, provider: 'noop_driver', ...body },
  })

const met = (label: string) => ({
  status: 403,
  body: { faultcode: 'Client', faultstring: `Quota has been met for resources: ${label}`, debuginfo: null },
})

t.test('show, set and reset', async t => {
  const api = await startTestApi({ quota: { pool: 7 } })
  t.teardown(api.stop)
  const show = async (path: string, token?: string) =>
    (await api.ask('GET', `${QUOTAS}/${path}`, undefined, token)).body

  t.strictSame(await show(OWN), { quota: limitsOf(OWN, { pool: 7 }) })
  t.strictSame(
    await show('anything', admin),
    { quota: limitsOf('anything', { pool: 7 }) },
    'an unknown project has the defaults',
  )
  t.strictSame(await show('defaults'), { quota: limitsOf('defaults', { pool: 7 }) }, 'any reader may see the defaults')
  t.strictSame(await show(`${OWN}/default`), { quota: limitsOf(OWN, { pool: 7 }) })
  t.equal((await api.ask('GET', `${QUOTAS}/${OWN}?fields=pool`)).status, 400, 'the route takes no query arguments')
  t.strictSame((await api.ask('GET', QUOTAS)).body, { quotas: [], quotas_links: [] })

  t.match(await setQuota(api, { listener: 3, load_balancer: '5', pool: -1 }), {
    status: 202,
    body: { quota: limitsOf(OWN, { listener: 3, loadbalancer: 5, pool: -1 }) },
  })
  t.match((await setQuota(api, { listener: null, health_monitor: 0 })).body, {
    quota: limitsOf(OWN, { loadbalancer: 5, pool: -1, healthmonitor: 0 }),
  })
  t.strictSame(await show(OWN), { quota: limitsOf(OWN, { loadbalancer: 5, pool: -1, healthmonitor: 0 }) })
  t.strictSame(await show(`${OWN}/default`), { quota: limitsOf(OWN, { pool: 7 }) }, 'the defaults do not change')
  const nothing = Object.fromEntries(Object.keys(DEFAULTS).map(name => [name, null]))
  t.strictSame((await api.ask('GET', QUOTAS)).body, {
    quotas: [
      { project_id: OWN, tenant_id: OWN, ...spelt({ ...nothing, loadbalancer: 5, pool: -1, healthmonitor: 0 }) },
    ],
    quotas_links: [],
  })
  for (const quota of [
    { listener: -2 },
    { listener: 2_000_000_001 },
    { listener: 'x' },
    { listener: 1.5 },
    { listener: [] },
    { project_id: OWN },
    { bogus: 1 },
    { loadbalancer: 1, load_balancer: 2 },
  ]) {
    t.equal((await setQuota(api, quota)).status, 400, JSON.stringify(quota))
  }
  t.equal((await setQuota(api, { loadbalancer: 1, load_balancer: 1 })).status, 202)
  t.equal((await api.ask('PUT', `${QUOTAS}/${OWN}`, {}, admin)).status, 400)
  t.equal((await setQuota(api, {}, 'x'.repeat(37))).status, 400)
  t.equal((await setQuota(api, {}, '%00')).status, 400)

  const reset = (project: string) => api.ask('DELETE', `${QUOTAS}/${project}`, undefined, admin)
  t.match(await reset(OWN), { status: 202, text: '' })
  t.strictSame(await show(OWN), { quota: limitsOf(OWN, { pool: 7 }) })
  t.match(await reset('unheard-of'), { status: 404, body: { faultstring: 'Quotas unheard-of not found.' } })
  t.equal((await createBalancer(api, { provider: 'amphora' })).status, 201)
  t.equal((await reset(OWN)).status, 202)
})

t.test('lists of quotas', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  for (const [project, pool] of [
    ['p3', 1],
    ['p1', 2],
    ['p2', 2],
  ] as const)
    await setQuota(api, { pool }, project)
  const list = async (query: string, token = admin) => {
    const { body } = await api.ask('GET', `${QUOTAS}?${query}`, undefined, token)
    return (body.quotas as Json[]).map(({ project_id }) => project_id)
  }
  t.strictSame(await list(''), ['p1', 'p2', 'p3'])
  t.strictSame(await list('sort=project_id:desc'), ['p3', 'p2', 'p1'])
  t.strictSame(await list('pool=2'), ['p1', 'p2'])
  t.strictSame(await list('project_id=p1'), ['p1'])
  t.strictSame(await list('limit=1&marker=p2'), ['p3'])
  t.strictSame(await list('limit=1&marker=p2&page_reverse=true'), ['p1'])
  t.equal((await api.ask('GET', `${QUOTAS}?marker=nobody`, undefined, admin)).status, 400)
  t.match((await api.ask('GET', `${QUOTAS}?limit=2`, undefined, admin)).body.quotas_links, [
    { rel: 'next', href: `${api.url}/v2/lbaas/quotas?limit=2&marker=p2` },
  ])
  t.strictSame(await list('', tokenOf('reader', 'p1')), ['p1'], 'other callers see only their own project')
})

/** How to create one more object of each kind below a tree, and the text that refuses it. */
type Tree = { lb: string; listener: string; pool: string; policy: string }
const KINDS: Record<string, { label: string; make: (api: TestApi, tree: Tree, index: number) => Promise<Reply> }> = {
  loadbalancer: { label: 'Load Balancer', make: api => createBalancer(api) },
  listener: {
    label: 'Listener',
    make: (api, { lb }, index) =>
      api.ask('POST', '/v2/lbaas/listeners', {
        listener: { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 1000 + index },
      }),
  },
  pool: {
    label: 'Pool',
    make: (api, { lb }) =>
      api.ask('POST', '/v2/lbaas/pools', {
        pool: { loadbalancer_id: lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
      }),
  },
  member: {
    label: 'Member',
    make: (api, { pool }, index) =>
      api.ask('POST', `/v2/lbaas/pools/${pool}/members`, {
        member: { address: '10.0.0.9', protocol_port: 1000 + index },
      }),
  },
  healthmonitor: {
    label: 'Health Monitor',
    make: async (api, { lb }) => {
      const pool = await api.ask('POST', '/v2/lbaas/pools', {
        pool: { loadbalancer_id: lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
      })
      return api.ask('POST', '/v2/lbaas/healthmonitors', {
        healthmonitor: { pool_id: idIn(pool, 'pool'), type: 'HTTP', delay: 5, timeout: 3, max_retries: 2 },
      })
    },
  },
  l7policy: {
    label: 'L7 Policy',
    make: (api, { listener }) =>
      api.ask('POST', '/v2/lbaas/l7policies', { l7policy: { listener_id: listener, action: 'REJECT' } }),
  },
  l7rule: {
    label: 'L7 Rule',
    make: (api, { policy }, index) =>
      api.ask('POST', `/v2/lbaas/l7policies/${policy}/rules`, {
        rule: { type: 'PATH', compare_type: 'EQUAL_TO', value: `/${index}` },
      }),
  },
}

/** A tree with one object of each kind. */
const TREE = {
  listeners: [
    {
      protocol: 'HTTP',
      protocol_port: 80,
      default_pool: {
        name: 'p',
        protocol: 'HTTP',
        lb_algorithm: 'ROUND_ROBIN',
        members: [{ address: '10.0.0.1', protocol_port: 80 }],
        healthmonitor: { type: 'HTTP', delay: 5, timeout: 3, max_retries: 2 },
      },
      l7policies: [{ action: 'REJECT', rules: [{ type: 'PATH', compare_type: 'EQUAL_TO', value: '/' }] }],
    },
  ],
}

async function makeTree(api: TestApi): Promise<Tree> {
  const { body } = await createBalancer(api, TREE)
  const id = (...path: (string | number)[]) => String(at(body, 'loadbalancer', ...path, 'id'))
  return { lb: id(), listener: id('listeners', 0), pool: id('pools', 0), policy: id('listeners', 0, 'l7policies', 0) }
}

t.test('every limit is exact under concurrent requests', async t => {
  const api = await startTestApi({ providers: ['noop_driver'] })
  t.teardown(api.stop)
  // Changes of one load balancer run one after another; those of several run concurrently.
  const trees = [await makeTree(api), await makeTree(api), await makeTree(api), await makeTree(api)]
  t.strictSame(await inUse(api), Object.fromEntries(Object.keys(DEFAULTS).map(name => [name, 4])))
  for (const [kind, { label, make }] of Object.entries(KINDS)) {
    await t.test(kind, async t => {
      await setQuota(api, { [kind]: 7 })
      const generations = async () => Number((await api.database('load_balancer').sum('generation').first())?.sum)
      const before = await generations()
      const replies = await Promise.all(Array.from({ length: 20 }, (_, index) => make(api, trees[index % 4]!, index)))
      const refused = replies.filter(({ status }) => status !== 201)
      t.equal(replies.length - refused.length, 3)
      for (const reply of refused) t.match(reply, met(label))
      t.equal((await inUse(api))[kind], 7)
      const traces = kind === 'healthmonitor' ? 23 : 3
      t.equal((await generations()) - before, traces, 'a refusal changes no generation')
      t.match((await setQuota(api, { [kind]: 1 })).status, 202, 'a limit below the current use can be set')
      t.match(await make(api, trees[0]!, 90), met(label))
      await setQuota(api, { [kind]: 8 })
      t.equal((await make(api, trees[0]!, 91)).status, 201)
      await setQuota(api, { [kind]: null })
      t.equal((await make(api, trees[0]!, 92)).status, 201)
    })
  }
})

t.test('100 creates against a quota of 10', async t => {
  const api = await startTestApi({ quota: { loadbalancer: 10 }, providers: ['noop_driver'] })
  t.teardown(api.stop)
  const replies = await Promise.all(Array.from({ length: 100 }, () => createBalancer(api)))
  t.equal(replies.filter(({ status }) => status === 201).length, 10)
  t.equal(replies.filter(({ status }) => status === 403).length, 90)
  t.equal((await inUse(api)).loadbalancer, 10)
  t.match(await createBalancer(api, { provider: 'noop_driver' }), met('Load Balancer'))
})

t.test('a tree is charged as a whole', async t => {
  const api = await startTestApi({ providers: ['noop_driver'] })
  t.teardown(api.stop)
  for (const [kind, { label }] of Object.entries(KINDS)) {
    await setQuota(api, { [kind]: 0 })
    t.match(await createBalancer(api, TREE), met(label))
    await setQuota(api, { [kind]: null })
  }
  t.strictSame(
    await inUse(api),
    Object.fromEntries(Object.keys(DEFAULTS).map(name => [name, 0])),
    'a refused tree leaves nothing',
  )
  const [pools] = [{ pools: ['a', 'b'].map(name => ({ name, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' })) }]
  await setQuota(api, { pool: 1 })
  t.match(await createBalancer(api, pools), met('Pool'), 'a tree is created whole or not at all')
  await setQuota(api, { pool: 2 })
  t.equal((await createBalancer(api, pools)).status, 201)
})

t.test('a batch of members is charged for what it adds', async t => {
  const api = await startTestApi({ providers: ['noop_driver'] })
  t.teardown(api.stop)
  const tree = await makeTree(api)
  const batch = (ports: number[], query = '') =>
    api.ask('PUT', `/v2/lbaas/pools/${tree.pool}/members${query}`, {
      members: ports.map(port => ({ address: '10.0.0.1', protocol_port: port })),
    })
  await setQuota(api, { member: 2 })
  t.match(await batch([80, 81, 82]), met('Member'))
  t.equal((await batch([80, 81])).status, 202)
  t.equal((await batch([82, 83])).status, 202, 'as many members leave as join')
  t.match(await batch([82, 83, 84]), met('Member'), 'members being deleted count')
  await api.apply(tree.lb)
  t.match(await batch([84], '?additive_only=true'), met('Member'))
  t.equal((await batch([82], '?additive_only=true')).status, 202, 'an update adds no member')
  await setQuota(api, { member: 3 })
  t.equal((await batch([83, 84, 85])).status, 202, 'one member leaves and two join')
})

t.test('a deleted object counts until it is removed', async t => {
  const api = await startTestApi({ providers: ['noop_driver'] })
  t.teardown(api.stop)
  const tree = await makeTree(api)
  const one = Object.fromEntries(Object.keys(DEFAULTS).map(name => [name, 1]))
  await setQuota(api, { listener: 1, l7rule: 1 })
  await api.ask('DELETE', `/v2/lbaas/listeners/${tree.listener}`)
  t.strictSame(await inUse(api), one)
  t.match(await KINDS.listener?.make(api, tree, 0), met('Listener'))
  await api.apply(tree.lb)
  t.strictSame(
    await inUse(api),
    { ...one, listener: 0, l7policy: 0, l7rule: 0 },
    'a deleted listener releases the quota of its policies and rules',
  )
  await api.fail(tree.lb)
  t.strictSame((await inUse(api)).loadbalancer, 1, 'an object in ERROR counts')
  await api.ask('DELETE', `/v2/lbaas/loadbalancers/${tree.lb}?cascade=true`)
  t.strictSame((await inUse(api)).pool, 1)
  await api.apply(tree.lb)
  t.strictSame(await inUse(api), Object.fromEntries(Object.keys(DEFAULTS).map(name => [name, 0])))
})

t.test('a locked quota row means 503 for its project only', async t => {
  const api = await startTestApi({ providers: ['noop_driver'] })
  t.teardown(api.stop)
  await setQuota(api, { loadbalancer: 5 })
  const holder = await api.database.transaction()
  await holder.raw('SELECT FROM quota WHERE project_id = ? FOR UPDATE', [OWN])
  const [created, set, elsewhere] = await Promise.all([
    createBalancer(api),
    setQuota(api, { pool: 1 }),
    setQuota(api, { pool: 1 }, 'another'),
  ])
  for (const reply of [created, set]) {
    t.match(reply, { status: 503, body: { faultcode: 'Server', faultstring: /Try again/ } })
    t.equal(reply.headers.get('retry-after'), '1')
  }
  t.equal(elsewhere.status, 202)
  await holder.rollback()
  t.equal((await createBalancer(api)).status, 201)
})

t.test('a quota check costs at most one extra statement', async t => {
  const api = await startTestApi({ providers: ['noop_driver'], quota: { member: -1 } })
  t.teardown(api.stop)
  const tree = await makeTree(api)
  const count = async (port: number) => {
    const statements = await api.statementsOf(() => KINDS.member!.make(api, tree, port))
    return statements.filter(sql => /quota/.test(sql)).length
  }
  t.equal(await count(1), 1, 'without a limit, the lookup is part of a statement that is sent anyway')
  await setQuota(api, { member: 100 })
  t.equal(await count(2), 2)
})

t.test('a configuration too large for an amphora is refused before it is stored, with the limit', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const made = await api.ask('POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: {
      vip_subnet_id: SUBNET,
      provider: 'amphora',
      listeners: [{ name: 'a', protocol: 'TCP', protocol_port: 1 }],
    },
  })
  const id = idIn(made, 'loadbalancer')
  const listen = (protocol_port: number, connection_limit: number, more: object = {}) =>
    api.ask('POST', '/v2/lbaas/listeners', {
      listener: { loadbalancer_id: id, protocol: 'TCP', protocol_port, connection_limit, ...more },
    })
  const largest = { openFiles: 20_000, memoryBytes: 24 * 1024 ** 3 }
  t.equal((await listen(2, 2_000_000)).status, 201, 'anything is accepted until an amphora has reported its limits')
  t.equal(
    (await api.ask('PUT', `/v2/lbaas/listeners/${await listenerAt(2)}`, { listener: { connection_limit: 5 } })).status,
    200,
  )

  await api.database('amphora').insert({ id: randomUUID(), status: 'READY', limits: JSON.stringify(largest) })
  t.match(await listen(3, 50_000), { status: 400, body: { faultstring: /50005 in all .*limits of 9048 in all fit/ } })
  t.equal((await listen(3, 8_750)).status, 201)
  t.match(await listen(4, 295), { status: 400 }, 'the sum with other listeners is checked too')
  t.equal((await listen(4, 200)).status, 201)
  const third = await listenerAt(3)
  const limit = (connection_limit: number) =>
    api.ask('PUT', `/v2/lbaas/listeners/${third}`, { listener: { connection_limit } })
  t.match(await limit(9_100), { status: 400, body: { faultstring: /fit/ } })
  t.match(await api.ask('GET', `/v2/lbaas/listeners/${third}`), { body: { listener: { connection_limit: 8_750 } } })
  const smaller = { id: randomUUID(), load_balancer_id: id, status: 'ALLOCATED' }
  await api.database('amphora').insert({ ...smaller, limits: JSON.stringify({ ...largest, openFiles: 4_000 }) })
  t.equal((await limit(8_700)).status, 200, 'a lower limit is accepted even if it is still too high')
  t.equal((await limit(8_701)).status, 400)
  await api.database('amphora').where({ id: smaller.id }).delete()
  t.equal((await limit(0)).status, 200)

  const members = (count: number, first = 0) =>
    Array.from({ length: count }, (_, n) => ({
      address: `10.0.${(first + n) >> 8}.${(first + n) & 255}`,
      protocol_port: 80,
    }))
  const pool = { name: 'p', protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN', members: members(80, 1) }
  const monitor = { type: 'TCP', delay: 5, timeout: 3, max_retries: 3 }
  await api.database('amphora').insert({
    ...{ id: randomUUID(), load_balancer_id: id, status: 'ALLOCATED' },
    limits: JSON.stringify({ ...largest, openFiles: 4_000 }),
  })
  t.match(await listen(5, -1, { default_pool: pool }), { status: 201 }, 'members alone cost nothing')
  const { body } = await api.ask('GET', `/v2/lbaas/listeners/${await listenerAt(5)}`)
  const poolId = String(at(body, 'listener', 'default_pool_id'))
  const checked = await api.ask('POST', '/v2/lbaas/healthmonitors', {
    healthmonitor: { pool_id: poolId, ...monitor },
  })
  t.equal(checked.status, 201)
  const batch = (count: number) => api.ask('PUT', `/v2/lbaas/pools/${poolId}/members`, { members: members(count, 1) })
  t.match(await batch(81), { status: 202 })
  t.match(await batch(2_000), { status: 400, body: { faultstring: /with these limits, \d+ monitored members/ } })
  const other = { address: '10.9.9.9', protocol_port: 80 }
  t.equal((await api.ask('POST', `/v2/lbaas/pools/${poolId}/members`, { member: other })).status, 201)
  const statements = await api.statementsOf(() => limit(1))
  t.notOk(
    statements.some(sql => sql.startsWith('SELECT (SELECT json_build_object')),
    'the check costs no extra statement',
  )

  await api
    .database('amphora')
    .where({ load_balancer_id: id })
    .update({ limits: JSON.stringify({ ...largest, openFiles: 200 }) })
  const monitorId = idIn(checked, 'healthmonitor')
  const put = (path: string, body: object) => api.ask('PUT', `/v2/lbaas/${path}`, body)
  t.equal(
    (await put(`pools/${poolId}`, { pool: { admin_state_up: true } })).status,
    200,
    'enabling an enabled pool is allowed',
  )
  for (const [admin_state_up, status] of [
    [true, 200],
    [false, 200],
    [true, 400],
  ] as const) {
    t.equal((await put(`healthmonitors/${monitorId}`, { healthmonitor: { admin_state_up } })).status, status)
  }

  await api
    .database('amphora')
    .where({ load_balancer_id: id })
    .update({ limits: JSON.stringify(largest) })
  const flows = (protocol_port: number, connection_limit: number) =>
    listen(protocol_port, connection_limit, { protocol: 'UDP' })
  t.equal((await flows(11, 58_000)).status, 201, 'flows do not share with connections')
  t.match(await flows(12, 983), { status: 400, body: { faultstring: /limits of 58983 in all for UDP and SCTP/ } })
  t.equal((await flows(12, -1)).status, 201)
  t.match(await listen(13, 883, { protocol: 'SCTP' }), { status: 400, body: { faultstring: /58882 in all fit/ } })
  await api
    .database('amphora')
    .where({ load_balancer_id: id })
    .update({ limits: JSON.stringify({ ...largest, flows: 262_144 }) })
  t.equal((await listen(13, 883, { protocol: 'SCTP' })).status, 201, 'what an amphora reports counts')

  async function listenerAt(port: number): Promise<string> {
    const { body } = await api.ask('GET', `/v2/lbaas/listeners?load_balancer_id=${id}&protocol_port=${port}`)
    return (body.listeners as { id: string }[])[0]?.id ?? ''
  }
})
