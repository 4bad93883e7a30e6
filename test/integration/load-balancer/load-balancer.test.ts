import t from 'tap'
import { tokenOf } from '../../support/clients/callers.js'
import { at, idIn } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'
import {
  keysOf,
  LISTENER_KEYS,
  MONITOR_KEYS,
  NOWHERE,
  POOL_KEYS,
  sorted,
} from '../../support/database/load-balancer-keys.js'

t.test('transport and discovery', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  await t.test('the version document needs no token and links to the client’s own URL', async t => {
    const { status, body } = await api.ask('GET', '/', undefined, null)
    t.equal(status, 200)
    t.match(at(body, 'versions', 0), {
      id: 'v2.0',
      status: 'SUPPORTED',
      updated: '2016-12-11T00:00:00Z',
      links: [{ href: `${api.url}/v2`, rel: 'self' }],
    })
    t.match(at(body, 'versions', 30), { id: 'v2.30', status: 'CURRENT' })
  })
  await t.test('without a valid token, everything else is 401 in the token layer’s shape', async t => {
    for (const [path, token] of [
      ['/v2', null],
      ['/v2.0/lbaas/loadbalancers', null],
      ['/nothing', null],
      ['/v2/lbaas/pools', 'nonsense'],
    ] as const) {
      const reply = await api.ask('GET', path, undefined, token)
      t.match(reply, { status: 401, body: { error: { code: 401, title: 'Unauthorized', message: String } } })
      t.equal(reply.headers.get('www-authenticate'), 'Keystone uri="http://identity.test/v3"')
    }
    t.match(await api.ask('GET', '/v2.0/'), { status: 200, text: '"v2"' })
  })
  await t.test('every base path serves the same routes', async t => {
    for (const path of [
      '/v2/lbaas/pools',
      '/v2.0/lbaas/pools',
      '/v2/pools',
      '/v2.0/pools',
      '/lbaas/pools',
      '/v2/lbaas/pools/',
      '/v2/lbaas/pools.json',
    ]) {
      t.match(await api.ask('GET', path), { status: 200, body: { pools: [], pools_links: [] } }, path)
    }
    for (const path of ['/v2/octavia/amphorae', '/v2.0/octavia/amphorae', '/octavia/amphorae']) {
      t.match(
        await api.ask('GET', path, undefined, tokenOf('admin')),
        { status: 200, body: { amphorae: [], amphorae_links: [] } },
        path,
      )
    }
  })
  await t.test('the health check needs no token and is off by default', async t => {
    t.match(await api.ask('GET', '/healthcheck', undefined, null), { status: 404, body: { faultcode: 'Client' } })
    const checked = await startTestApi({ settings: { healthcheck_enabled: true } })
    t.teardown(checked.stop)
    t.match(await checked.ask('GET', '/healthcheck', undefined, null), { status: 200, text: 'OK' })
    t.match(await checked.ask('GET', '/healthcheck', undefined, null, { Accept: 'application/json' }), {
      body: { detailed: false, reasons: ['OK'] },
    })
    t.equal((await checked.ask('HEAD', '/healthcheck', undefined, null)).status, 204)
    t.equal((await checked.ask('POST', '/healthcheck', undefined, null)).status, 405)
  })
  await t.test('routing errors are faults with code and title', async t => {
    t.match(await api.ask('GET', '/v2/lbaas/nothing'), {
      status: 404,
      body: { faultcode: 'Client', debuginfo: null, code: 404, title: 'Not Found' },
    })
    t.match(await api.ask('PATCH', '/v2/lbaas/pools'), { status: 405, body: { faultcode: 'Client', code: 405 } })
    t.match(await api.ask('GET', `/v2/lbaas/pools/${NOWHERE}/members`), {
      status: 404,
      body: {
        faultstring: `Pool ${NOWHERE} not found.`,
        code: 404,
        title: 'Not Found',
        description: `Pool ${NOWHERE} not found.`,
      },
    })
  })
  await t.test('content negotiation', async t => {
    for (const accept of ['*/*', 'application/json', '', 'text/html, application/*;q=0.5', 'nonsense']) {
      t.equal(
        (await api.ask('GET', '/v2/lbaas/pools', undefined, tokenOf('member'), { Accept: accept })).status,
        200,
        accept,
      )
    }
    t.match(await api.ask('GET', '/v2/lbaas/pools', undefined, tokenOf('member'), { Accept: 'application/xml' }), {
      status: 406,
      body: { errors: [{ status: 406, title: 'Not Acceptable', detail: String, request_id: /^req-/ }] },
    })
    t.equal(
      (await api.ask('POST', '/v2/lbaas/pools', 'pool=1', tokenOf('member'), { 'Content-Type': 'text/plain' })).status,
      415,
    )
    t.match(await api.ask('POST', '/v2/lbaas/pools', '{"pool":'), {
      status: 400,
      body: { faultcode: 'Client', debuginfo: null },
    })
    t.equal((await api.ask('POST', '/v2/lbaas/pools')).status, 400)
    t.equal(
      (await api.ask('POST', '/v2/lbaas/healthmonitors', { healthmonitor: { name: 'x'.repeat(120_000) } })).status,
      413,
    )
    t.match(
      (await api.ask('GET', '/v2/lbaas/pools')).headers.get('x-openstack-request-id') ?? '',
      /^req-[0-9a-f-]{36}$/,
    )
  })
  await t.test('deeply nested bodies and lone surrogates are refused', async t => {
    const lb = idIn(
      await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET } }),
      'loadbalancer',
    )
    const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`
    const listener = `"loadbalancer_id":"${lb}","protocol":"HTTP","protocol_port":1`
    for (const [path, body] of [
      ['loadbalancers', `{"loadbalancer":{"name":${deep}}}`],
      ['loadbalancers', deep],
      ['listeners', `{"listener":{${listener},"l7policies":[{"a":${deep}}]}}`],
      ['listeners', `{"listener":{${listener},"insert_headers":{"X-Real-IP":"\\ud800"}}}`],
    ] as const) {
      t.equal((await api.ask('POST', `/v2/lbaas/${path}`, body)).status, 400, body.slice(0, 120))
    }
  })
  await t.test('the provider list ignores unknown arguments', async t => {
    t.same((await api.ask('GET', '/v2/lbaas/providers?bogus=1')).body, {
      providers: [
        { name: 'amphora', description: 'The amphora provider' },
        { name: 'other', description: 'The other provider' },
      ],
    })
  })
})

t.test('a tree created in one request', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const tree = {
    name: 'tree',
    vip_subnet_id: SUBNET,
    pools: [
      {
        name: 'shared',
        protocol: 'HTTP',
        lb_algorithm: 'ROUND_ROBIN',
        members: [{ address: '10.0.0.1', protocol_port: 80 }],
      },
    ],
    listeners: [
      { protocol: 'HTTP', protocol_port: 80, default_pool: { name: 'shared' } },
      {
        protocol: 'TCP',
        protocol_port: 81,
        default_pool: {
          name: 'own',
          protocol: 'TCP',
          lb_algorithm: 'SOURCE_IP',
          healthmonitor: { type: 'TCP', delay: 5, timeout: 3, max_retries: 2 },
        },
      },
    ],
  }
  await t.test('is answered in full, and later shown by ids', async t => {
    const created = await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: tree })
    t.equal(created.status, 201, created.text)
    t.match(created.body, {
      loadbalancer: {
        listeners: [{ protocol_port: 80, provisioning_status: 'PENDING_CREATE' }, { protocol_port: 81 }],
        pools: [
          { name: 'shared', members: [{ address: '10.0.0.1' }], healthmonitor: null, listeners: [{ id: String }] },
          { name: 'own', healthmonitor: { type: 'TCP', max_retries_down: 2 } },
        ],
      },
    })
    t.equal(
      keysOf(at(created.body, 'loadbalancer', 'listeners', 0)),
      sorted(LISTENER_KEYS.replace(' loadbalancers', '')),
    )
    t.equal(
      keysOf(at(created.body, 'loadbalancer', 'pools', 0)),
      sorted(`${POOL_KEYS.replace(' loadbalancers', '')} healthmonitor`),
    )
    t.equal(
      keysOf(at(created.body, 'loadbalancer', 'pools', 1, 'healthmonitor')),
      sorted(MONITOR_KEYS.replace(' pools', '')),
    )
    const { body } = await api.ask('GET', `/v2/lbaas/loadbalancers/${idIn(created, 'loadbalancer')}`)
    t.strictSame(keysOf(at(body, 'loadbalancer', 'listeners', 0)), 'id')
  })
  await t.test('stores nothing when one part fails', async t => {
    const count = async () => (await api.database('load_balancer').count().first())?.count
    const before = await count()
    const broken = { ...tree, listeners: [...tree.listeners, { protocol: 'HTTP', protocol_port: 81 }] }
    t.equal((await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: broken })).status, 409)
    t.equal(
      (
        await api.ask('POST', '/v2/lbaas/loadbalancers', {
          loadbalancer: { ...tree, pools: [...tree.pools, { ...tree.pools[0], name: 'old', tls_versions: ['SSLv3'] }] },
        })
      ).status,
      501,
    )
    t.equal(await count(), before)
  })
})
