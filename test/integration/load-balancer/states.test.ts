import t from 'tap'
import { tokenOf } from '../../support/clients/callers.js'
import { at, type Json } from '../../support/clients/json-answers.js'
import { startTestApi } from '../../support/clients/load-balancer-api.js'
import { expected, makeTree, statuses, type Tree } from '../../support/inputs/load-balancer-tree.js'

t.test('provisioning statuses that each request sets', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  await t.test('everything starts in PENDING_CREATE and becomes ACTIVE together', async t => {
    const tree = await makeTree(api, false)
    t.strictSame(
      await statuses(api, tree),
      expected('PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE'),
    )
    t.equal(
      (await api.ask('PUT', `/v2/lbaas/pools/${tree.pool}/members/${tree.member}`, { member: { weight: 5 } })).status,
      200,
      'a change during creation is accepted',
    )
    t.strictSame(
      await statuses(api, tree),
      expected('PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE'),
      'an object still being created stays PENDING_CREATE',
    )
    await api.apply(tree.lb)
    t.strictSame(await statuses(api, tree), expected('ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE'))
  })
  const tree = await makeTree(api)
  const stories: [string, string, string, object | undefined, ReturnType<typeof expected>][] = [
    [
      'load balancer update',
      'PUT',
      'loadbalancers/:lb',
      { loadbalancer: { name: 'n' } },
      expected('PENDING_UPDATE', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'listener update',
      'PUT',
      'listeners/:listener',
      { listener: { name: 'n' } },
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'ACTIVE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'pool update',
      'PUT',
      'pools/:pool',
      { pool: { tags: ['n'] } },
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'member update',
      'PUT',
      'pools/:pool/members/:member',
      { member: { weight: 2 } },
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'ACTIVE'),
    ],
    [
      'member create',
      'POST',
      'pools/:pool/members',
      { member: { address: '10.0.0.7', protocol_port: 1 } },
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'member batch',
      'PUT',
      'pools/:pool/members',
      { members: [{ address: '10.0.0.1', protocol_port: 80 }] },
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'ACTIVE'),
    ],
    [
      'monitor update',
      'PUT',
      'healthmonitors/:monitor',
      { healthmonitor: { delay: 6 } },
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'ACTIVE', 'PENDING_UPDATE'),
    ],
    [
      'monitor delete',
      'DELETE',
      'healthmonitors/:monitor',
      undefined,
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'ACTIVE', 'PENDING_DELETE'),
    ],
    [
      'member delete',
      'DELETE',
      'pools/:pool/members/:member',
      undefined,
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_DELETE', 'gone'),
    ],
    [
      'pool delete',
      'DELETE',
      'pools/:pool',
      undefined,
      expected('PENDING_UPDATE', 'PENDING_UPDATE', 'PENDING_DELETE', 'gone', 'gone'),
    ],
    [
      'listener delete',
      'DELETE',
      'listeners/:listener',
      undefined,
      expected('PENDING_UPDATE', 'PENDING_DELETE', 'gone', 'gone', 'gone'),
    ],
    [
      'load balancer delete',
      'DELETE',
      'loadbalancers/:lb',
      undefined,
      expected('PENDING_DELETE', 'gone', 'gone', 'gone', 'gone'),
    ],
  ]
  for (const [name, method, path, body, after] of stories) {
    await t.test(name, async t => {
      const filled = path.replace(/:(\w+)/g, (_, key: keyof Tree) => tree[key])
      const reply = await api.ask(method, `/v2/lbaas/${filled}`, body)
      t.ok(reply.status < 300, reply.text)
      t.strictSame(await statuses(api, tree), after)
      await api.apply(tree.lb)
    })
  }
  await t.test('after everything is deleted, no row remains', async t => {
    t.equal((await statuses(api, tree)).lb, 'gone')
    for (const table of ['listener', 'pool', 'member', 'health_monitor'])
      t.same(await api.database(table).where({ load_balancer_id: tree.lb }), [], table)
  })
})

t.test('operating status', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const tree = await makeTree(api, false)
  const monitor = async () =>
    at((await api.ask('GET', `/v2/lbaas/healthmonitors/${tree.monitor}`)).body, 'healthmonitor', 'operating_status')
  const members = async () =>
    (at((await api.ask('GET', `/v2/lbaas/pools/${tree.pool}/members`)).body, 'members') as Json[]).map(
      member => member.operating_status,
    )
  t.equal(await monitor(), 'OFFLINE', 'the monitor is not applied yet')
  await api.apply(tree.lb)
  t.equal(await monitor(), 'ONLINE')
  await api.ask('PUT', `/v2/lbaas/healthmonitors/${tree.monitor}`, { healthmonitor: { admin_state_up: false } })
  t.equal(await monitor(), 'OFFLINE')
  t.same(await members(), ['OFFLINE'])
  await api.ask('DELETE', `/v2/lbaas/healthmonitors/${tree.monitor}`)
  t.same(await members(), ['NO_MONITOR'], 'without a monitor, the status is unknown')
  await api.ask('POST', `/v2/lbaas/pools/${tree.pool}/members`, { member: { address: '10.0.0.3', protocol_port: 80 } })
  t.same(await members(), ['NO_MONITOR', 'NO_MONITOR'])
  t.equal(
    (
      await api.ask('POST', '/v2/lbaas/healthmonitors', {
        healthmonitor: { pool_id: tree.pool, type: 'TCP', delay: 1, timeout: 1, max_retries: 1 },
      })
    ).status,
    201,
    'the old monitor may still be in PENDING_DELETE',
  )
  t.same(
    await members(),
    ['NO_MONITOR', 'NO_MONITOR'],
    'a new monitor leaves the statuses as they are until its first report',
  )
})

t.test('provider failures', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const fault = async (id: string) =>
    at((await api.ask('GET', `/v2/lbaas/loadbalancers/${id}`)).body, 'loadbalancer', 'fault')
  await t.test('a failed create sets ERROR on every object and shows a fault; the next change retries it', async t => {
    const tree = await makeTree(api, false)
    t.equal(await fault(tree.lb), undefined)
    await api.fail(tree.lb, 'no-host')
    t.strictSame(await statuses(api, tree), expected('ERROR', 'ERROR', 'ERROR', 'ERROR', 'ERROR'))
    t.match(await fault(tree.lb), {
      code: 'no-host',
      text: 'It is no-host.',
      since: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/,
      retry_at: /^\d{4}-/,
    })
    const listed = await api.ask('GET', '/v2/lbaas/loadbalancers?provisioning_status=ERROR')
    t.match(
      listed.body,
      { loadbalancers: [{ id: tree.lb, fault: { code: 'no-host' } }] },
      'the list filtered by ERROR shows the same fault',
    )
    t.match((await api.ask('GET', `/v2/lbaas/loadbalancers/${tree.lb}/status`)).body, {
      statuses: { loadbalancer: { provisioning_status: 'ERROR', listeners: [{ provisioning_status: 'ERROR' }] } },
    })
    t.equal(
      (await api.ask('PUT', `/v2/lbaas/loadbalancers/${tree.lb}`, { loadbalancer: { name: 'again' } })).status,
      200,
    )
    t.strictSame(
      await statuses(api, tree),
      expected('PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE', 'PENDING_CREATE'),
    )
    t.match(await api.database('load_balancer').where({ id: tree.lb }).first(), { retry_at: null, attempts: 0 })
    t.equal(await fault(tree.lb), undefined)
  })
  await t.test('a failed change leaves unaffected objects ACTIVE', async t => {
    const tree = await makeTree(api)
    await api.ask('PUT', `/v2/lbaas/pools/${tree.pool}/members/${tree.member}`, { member: { weight: 5 } })
    await api.fail(tree.lb)
    t.strictSame(await statuses(api, tree), expected('ERROR', 'ERROR', 'ERROR', 'ERROR', 'ACTIVE'))
    await api.apply(tree.lb)
    t.strictSame(await statuses(api, tree), expected('ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE'))
  })
  await t.test('a failure after the apply sets ERROR on the load balancer alone', async t => {
    const tree = await makeTree(api)
    await api.fail(tree.lb, 'amphora-lost')
    t.strictSame(await statuses(api, tree), expected('ERROR', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE'))
  })
})

t.test('an administrator resets provisioning_status to ACTIVE', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const reset = (id: string, body: object = { provisioning_status: 'ACTIVE' }, token = tokenOf('admin')) =>
    api.ask('PUT', `/v2/lbaas/loadbalancers/${id}`, { loadbalancer: body }, token)
  const tree = await makeTree(api)
  await api.ask('DELETE', `/v2/lbaas/pools/${tree.pool}/members/${tree.member}`)
  await api.fail(tree.lb)
  await api
    .database('load_balancer')
    .where({ id: tree.lb })
    .update({ fence: 7, lease_owner: 'w', lease_until: api.database.raw(`now() + interval '8 seconds'`) })
  t.equal((await reset(tree.lb, undefined, tokenOf('member'))).status, 403)
  t.equal((await reset(tree.lb, { provisioning_status: 'ERROR' })).status, 400)
  t.equal((await reset(tree.lb, { provisioning_status: 'ACTIVE', name: 'x' })).status, 400)
  t.equal((await reset('ffffffff-ffff-4fff-8fff-ffffffffffff')).status, 404)
  t.match(await reset(tree.lb), {
    status: 200,
    body: { loadbalancer: { provisioning_status: 'ACTIVE', fault: undefined } },
  })
  t.strictSame(
    await statuses(api, tree),
    expected('ACTIVE', 'ACTIVE', 'ACTIVE', 'PENDING_DELETE', 'ACTIVE'),
    'a deletion in progress continues',
  )
  const row = await api.database('load_balancer').where({ id: tree.lb }).first()
  t.ok(row.recheck_at instanceof Date, 'a recheck is due at once, so nothing leaks')
  t.match(row, { fence: 8, lease_owner: 'w', fault: null, retry_at: null }, 'the fence keeps a late worker out')
  await api.ask('DELETE', `/v2/lbaas/loadbalancers/${tree.lb}?cascade=True`)
  t.match(await reset(tree.lb), {
    status: 409,
    body: { faultstring: `Load Balancer ${tree.lb} is immutable and cannot be updated.` },
  })
})

t.test('deletion', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const remove = (path: string) => api.ask('DELETE', `/v2/lbaas/${path}`)
  await t.test('a load balancer with children is deleted only by cascade', async t => {
    const tree = await makeTree(api)
    t.match(await remove(`loadbalancers/${tree.lb}`), {
      status: 400,
      body: { faultstring: `Validation failure: Cannot delete Load Balancer ${tree.lb} - it has children` },
    })
    t.equal((await statuses(api, tree)).lb, 'ACTIVE')
    t.equal((await remove(`loadbalancers/${tree.lb}?cascade=maybe`)).status, 400)
    t.equal((await remove(`loadbalancers/${tree.lb}?cascade=True`)).status, 204)
    t.strictSame(await statuses(api, tree), expected('PENDING_DELETE', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE'))
    t.equal((await remove(`loadbalancers/${tree.lb}`)).status, 204, 'a deletion can be repeated')
    const changes = [
      ['PUT', `loadbalancers/${tree.lb}`, { loadbalancer: { name: 'x' } }],
      ['PUT', `listeners/${tree.listener}`, { listener: { name: 'x' } }],
      ['DELETE', `pools/${tree.pool}`, undefined],
      ['POST', `pools/${tree.pool}/members`, { member: { address: '10.0.0.9', protocol_port: 1 } }],
      ['POST', 'listeners', { listener: { loadbalancer_id: tree.lb, protocol: 'TCP', protocol_port: 9 } }],
    ] as const
    for (const [method, path, body] of changes) {
      t.match(
        await api.ask(method, `/v2/lbaas/${path}`, body),
        { status: 409, body: { faultstring: `Load Balancer ${tree.lb} is immutable and cannot be updated.` } },
        `${method} ${path}`,
      )
    }
    await api.apply(tree.lb)
    t.equal((await remove(`loadbalancers/${tree.lb}`)).status, 404)
  })
  await t.test('a load balancer in ERROR can be deleted, and again after a failed delete', async t => {
    const tree = await makeTree(api, false)
    await api.fail(tree.lb)
    t.equal((await remove(`loadbalancers/${tree.lb}?cascade=1`)).status, 204)
    t.equal((await statuses(api, tree)).lb, 'PENDING_DELETE')
    await api.fail(tree.lb)
    t.equal((await statuses(api, tree)).lb, 'ERROR')
    t.equal((await remove(`loadbalancers/${tree.lb}`)).status, 204)
    t.equal((await statuses(api, tree)).lb, 'PENDING_DELETE', 'the deletion is retried at once')
  })
  await t.test('a child in PENDING_DELETE is immutable, but frees its port', async t => {
    const tree = await makeTree(api)
    t.equal((await remove(`pools/${tree.pool}`)).status, 204)
    t.equal((await remove(`pools/${tree.pool}`)).status, 204, 'the pool’s deletion can be repeated')
    t.match((await api.ask('GET', `/v2/lbaas/listeners/${tree.listener}`)).body, {
      listener: { default_pool_id: null },
    })
    t.match(await api.ask('PUT', `/v2/lbaas/pools/${tree.pool}`, { pool: { name: 'x' } }), {
      status: 409,
      body: { faultstring: `Pool ${tree.pool} is immutable and cannot be updated.` },
    })
    t.match(await api.ask('PUT', `/v2/lbaas/pools/${tree.pool}/members/${tree.member}`, { member: { weight: 1 } }), {
      status: 409,
      body: { faultstring: /^Pool / },
    })
    t.match(
      await api.ask('PUT', `/v2/lbaas/listeners/${tree.listener}`, { listener: { default_pool_id: tree.pool } }),
      { status: 409 },
    )
    t.equal((await remove(`listeners/${tree.listener}`)).status, 204)
    t.equal(
      (
        await api.ask('POST', '/v2/lbaas/listeners', {
          listener: { loadbalancer_id: tree.lb, protocol: 'TCP', protocol_port: 80 },
        })
      ).status,
      201,
    )
  })
})
