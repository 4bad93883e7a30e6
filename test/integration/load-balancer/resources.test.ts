import t from 'tap'
import { OWN, tokenOf } from '../../support/clients/callers.js'
import { at, idIn, type Reply } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'
import {
  AMPHORA_KEYS,
  keysOf,
  LB_KEYS,
  LISTENER_KEYS,
  MONITOR_KEYS,
  NOWHERE,
  POOL_KEYS,
  sorted,
} from '../../support/database/load-balancer-keys.js'

t.test('resources', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const made = async (path: string, key: string, body: object): Promise<string> => {
    const reply = await api.ask('POST', `/v2/lbaas/${path}`, { [key]: body })
    t.equal(reply.status, 201, reply.text)
    return idIn(reply, key)
  }
  const show = async (path: string): Promise<Reply> => api.ask('GET', `/v2/lbaas/${path}`)
  const lb = await made('loadbalancers', 'loadbalancer', {
    name: 'web',
    vip_subnet_id: SUBNET,
    admin_state_up: true,
    tags: ['a', 'a'],
  })

  await t.test('load balancer', async t => {
    const { body } = await show(`loadbalancers/${lb}`)
    t.equal(keysOf(body.loadbalancer), sorted(LB_KEYS))
    t.match(body.loadbalancer, {
      name: 'web',
      description: '',
      provisioning_status: 'PENDING_CREATE',
      operating_status: 'OFFLINE',
      project_id: OWN,
      tenant_id: OWN,
      created_at: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/,
      updated_at: null,
      vip_subnet_id: SUBNET,
      provider: 'amphora',
      tags: ['a'],
      listeners: [],
      pools: [],
    })
    const changed = await api.ask('PUT', `/v2/lbaas/loadbalancers/${lb}`, {
      loadbalancer: { name: 'renamed', tags: ['x'], admin_state_up: 'no', description: null },
    })
    t.match(changed, {
      status: 200,
      body: { loadbalancer: { name: 'renamed', tags: ['x'], admin_state_up: false, description: '' } },
    })
    t.match(at(changed.body, 'loadbalancer', 'updated_at'), /^\d{4}-/)
    t.match(await api.ask('PUT', `/v2/lbaas/loadbalancers/${lb}`, { loadbalancer: { vip_subnet_id: SUBNET } }), {
      status: 400,
      body: { faultstring: 'Unknown attribute for argument loadbalancer: vip_subnet_id' },
    })
    t.equal((await show('loadbalancers/web')).status, 404, 'a name instead of an id is not found')
    t.match(await show(`loadbalancers/${lb}?bogus=1`), {
      status: 400,
      body: { faultstring: 'Unknown argument: "bogus"' },
    })
    t.same((await show(`loadbalancers/${lb}?fields=id,name&fields=nothing`)).body, {
      loadbalancer: { id: lb, name: 'renamed' },
    })
    t.match((await show(`loadbalancers/${lb.replaceAll('-', '').toUpperCase()}`)).body, { loadbalancer: { id: lb } })
    t.strictSame(Object.keys((await show(`loadbalancers/${NOWHERE}`)).body), ['faultcode', 'faultstring', 'debuginfo'])
  })
  const listener = await made('listeners', 'listener', {
    loadbalancer_id: lb,
    protocol: 'HTTP',
    protocol_port: '80',
    connection_limit: '1000',
    insert_headers: { 'X-Forwarded-For': 'true' },
  })
  await t.test('listener', async t => {
    const { body } = await show(`listeners/${listener}`)
    t.equal(keysOf(body.listener), sorted(LISTENER_KEYS))
    t.match(body.listener, {
      protocol_port: 80,
      connection_limit: 1000,
      insert_headers: { 'X-Forwarded-For': 'true' },
      loadbalancers: [{ id: lb }],
      default_pool_id: null,
      l7policies: [],
      sni_container_refs: [],
      allowed_cidrs: null,
      client_authentication: 'NONE',
      hsts_preload: false,
      timeout_client_data: 50000,
    })
    t.match(
      await api.ask('POST', '/v2/lbaas/listeners', {
        listener: { loadbalancer_id: lb, protocol: 'TCP', protocol_port: 80 },
      }),
      {
        status: 409,
        body: {
          faultstring: 'Another Listener on this Load Balancer is already using protocol HTTP and protocol_port 80',
        },
      },
    )
    t.match(
      await api.ask('PUT', `/v2/lbaas/listeners/${listener}`, {
        listener: { connection_limit: null, timeout_client_data: 1000 },
      }),
      {
        status: 200,
        body: { listener: { connection_limit: -1, timeout_client_data: 1000 } },
      },
    )
    const nested = { name: 'nested', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }
    const refused = [
      [{ loadbalancer_id: NOWHERE, protocol: 'HTTP', protocol_port: 81 }, 404],
      [{ loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 81, default_pool_id: NOWHERE }, 404],
      [
        { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 81, default_pool_id: NOWHERE, default_pool: nested },
        400,
      ],
      [{ loadbalancer_id: lb, protocol: 'UDP', protocol_port: 81, default_pool: nested }, 400],
      [{ loadbalancer_id: lb, protocol: 'GOPHER', protocol_port: 81 }, 400],
      [{ loadbalancer_id: lb, protocol: 'TCP', protocol_port: 81, insert_headers: { 'X-Forwarded-For': 'true' } }, 400],
      [
        {
          loadbalancer_id: lb,
          protocol: 'HTTP',
          protocol_port: 81,
          default_tls_container_ref: 'http://k/v1/secrets/x',
        },
        400,
      ],
      [{ loadbalancer_id: lb, protocol: 'TERMINATED_HTTPS', protocol_port: 443 }, 400],
    ] as const
    for (const [body, status] of refused)
      t.equal((await api.ask('POST', '/v2/lbaas/listeners', { listener: body })).status, status, JSON.stringify(body))
  })
  const pool = await made('pools', 'pool', {
    listener_id: listener,
    loadbalancer_id: lb,
    protocol: 'HTTP',
    lb_algorithm: 'ROUND_ROBIN',
  })
  await t.test('pool', async t => {
    const { body } = await show(`pools/${pool}`)
    t.equal(keysOf(body.pool), sorted(POOL_KEYS), 'a pool without a monitor shows no healthmonitor_id')
    t.match(body.pool, {
      loadbalancers: [{ id: lb }],
      listeners: [{ id: listener }],
      members: [],
      session_persistence: null,
      tls_enabled: false,
    })
    t.match((await show(`listeners/${listener}`)).body, { listener: { default_pool_id: pool } })
    t.match(
      await api.ask('PUT', `/v2/lbaas/pools/${pool}`, { pool: { lb_algorithm: 'SOURCE_IP', session_persistence: {} } }),
      { status: 200, body: { pool: { lb_algorithm: 'SOURCE_IP' } } },
    )
    const valid = { protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }
    const refused = [
      [{ ...valid }, 400, /at least one of: loadbalancer_id, listener_id/],
      [{ ...valid, listener_id: listener }, 409, /already has a default pool/],
      [{ ...valid, listener_id: NOWHERE }, 404, /Listener/],
      [{ ...valid, listener_id: NOWHERE, loadbalancer_id: lb }, 404, /Listener/],
      [
        { ...valid, protocol: 'TCP', listener_id: listener },
        400,
        /'TCP' is invalid while the listener protocol is 'HTTP'/,
      ],
      [{ ...valid, loadbalancer_id: lb, tls_versions: ['SSLv3'] }, 501, /requested option: Pool tls_versions/],
      [{ ...valid, loadbalancer_id: lb, session_persistence: { type: 'NONE' } }, 400, /session_persistence.type/],
      [{ ...valid, loadbalancer_id: lb, protocol: 'TERMINATED_HTTPS' }, 400, /one of/],
    ] as const
    for (const [body, status, message] of refused)
      t.match(
        await api.ask('POST', '/v2/lbaas/pools', { pool: body }),
        { status, body: { faultstring: message } },
        JSON.stringify(body),
      )
    t.equal((await api.ask('PUT', `/v2/lbaas/pools/${pool}`, { pool: { lb_algorithm: null } })).status, 400)
  })
  await t.test('listener update of the default pool', async t => {
    const other = await made('pools', 'pool', { loadbalancer_id: lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' })
    const tcp = await made('pools', 'pool', { loadbalancer_id: lb, protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' })
    const update = (value: string | null) =>
      api.ask('PUT', `/v2/lbaas/listeners/${listener}`, { listener: { default_pool_id: value } })
    t.match(await update(other), { status: 200, body: { listener: { default_pool_id: other } } })
    t.match(await update(null), { status: 200, body: { listener: { default_pool_id: null } } })
    t.equal((await update(tcp)).status, 400)
    t.equal((await update(NOWHERE)).status, 404)
    t.equal((await update(pool)).status, 200)
  })
  await t.test('health monitor', async t => {
    const valid = { pool_id: pool, type: 'HTTP', delay: 5, timeout: 3, max_retries: 4 }
    const created = await api.ask('POST', '/v2/lbaas/healthmonitors', { healthmonitor: valid })
    t.match(created, {
      status: 201,
      body: {
        healthmonitor: {
          max_retries_down: 4,
          http_method: 'GET',
          url_path: '/',
          expected_codes: '200',
          pools: [{ id: pool }],
          operating_status: 'OFFLINE',
        },
      },
    })
    t.equal(keysOf(created.body.healthmonitor), sorted(MONITOR_KEYS))
    const id = idIn(created, 'healthmonitor')
    t.match((await show(`pools/${pool}`)).body, { pool: { healthmonitor_id: id } })
    t.match(await api.ask('POST', '/v2/lbaas/healthmonitors', { healthmonitor: valid }), {
      status: 409,
      body: { faultstring: 'This pool already has a health monitor' },
    })
    const update = (healthmonitor: object) => api.ask('PUT', `/v2/lbaas/healthmonitors/${id}`, { healthmonitor })
    t.match(
      await update({ http_version: 1.1, domain_name: 'a.example', url_path: '/x?y=1', expected_codes: '200, 204' }),
      {
        status: 200,
        body: { healthmonitor: { http_version: 1.1, domain_name: 'a.example', expected_codes: '200, 204' } },
      },
    )
    t.match(await update({ http_version: null }), { status: 400 }, 'the stored domain name still needs an HTTP version')
    t.match(await update({ url_path: null, max_retries_down: null }), {
      status: 200,
      body: { healthmonitor: { url_path: '/', max_retries_down: 4 } },
    })
    for (const body of [
      { delay: null },
      { type: 'TCP' },
      { url_path: 'x' },
      { url_path: '/a b' },
      { url_path: '/a\r\nb' },
      { expected_codes: '2xx' },
      { http_version: 2 },
      { max_retries: 11 },
    ])
      t.equal((await update(body)).status, 400, JSON.stringify(body))
    const elsewhere = await made('pools', 'pool', { loadbalancer_id: lb, protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' })
    const refused = [
      [{ ...valid, pool_id: null }, 404],
      [{ ...valid, pool_id: NOWHERE }, 404],
      [{ ...valid, pool_id: elsewhere, type: 'UDP-CONNECT' }, 400],
      [{ ...valid, pool_id: elsewhere, type: 'TCP', http_method: 'GET' }, 400],
    ] as const
    for (const [body, status] of refused)
      t.equal(
        (await api.ask('POST', '/v2/lbaas/healthmonitors', { healthmonitor: body })).status,
        status,
        JSON.stringify(body),
      )
  })
  await t.test('nested objects of a listener and of a pool', async t => {
    const child = {
      name: 'nested',
      protocol: 'TCP',
      lb_algorithm: 'LEAST_CONNECTIONS',
      members: [
        { address: '10.9.0.1', protocol_port: 1 },
        { address: '10.9.0.2', protocol_port: 1 },
      ],
      healthmonitor: { type: 'TCP', delay: 5, timeout: 3, max_retries: 2 },
    }
    const created = await api.ask('POST', '/v2/lbaas/listeners', {
      listener: { loadbalancer_id: lb, protocol: 'TCP', protocol_port: 9, default_pool: child },
    })
    t.equal(created.status, 201, created.text)
    const id = String(at(created.body, 'listener', 'default_pool_id'))
    const nested = await show(`pools/${id}`)
    t.match(nested.body, {
      pool: {
        name: 'nested',
        members: [{ id: String }, { id: String }],
        healthmonitor_id: String,
        listeners: [{ id: idIn(created, 'listener') }],
      },
    })
    t.match(
      (await show(`pools/${id}/members`)).body,
      { members: [{ address: '10.9.0.1', operating_status: 'OFFLINE' }, { address: '10.9.0.2' }] },
      'a new member of a pool with a monitor is OFFLINE',
    )
    t.match(await api.ask('POST', '/v2/lbaas/pools', { pool: { ...child, loadbalancer_id: lb } }), {
      status: 201,
      body: { pool: { members: [{ id: String }, { id: String }] } },
    })
  })
  await t.test('statistics add up all amphorae and earlier epochs', async t => {
    const [live, dead] = ['00000000-0000-4000-8000-00000000000a', '00000000-0000-4000-8000-00000000000b']
    await api
      .database('amphora')
      .insert({ id: live, load_balancer_id: lb, status: 'ALLOCATED', role: 'STANDALONE', vrrp_ip: '10.0.0.5' })
    await api.database('listener_statistics').insert([
      {
        listener_id: listener,
        amphora_id: live,
        epoch: 'a',
        base_bytes_in: 100,
        bytes_in: 11,
        base_total_connections: 4,
        total_connections: 2,
        active_connections: 5,
        request_errors: 1,
      },
      {
        listener_id: listener,
        amphora_id: dead,
        epoch: 'b',
        bytes_in: 1000,
        bytes_out: 7,
        active_connections: 50,
        base_request_errors: 2,
      },
    ])
    const stats = { bytes_in: 1111, bytes_out: 7, active_connections: 5, total_connections: 6, request_errors: 3 }
    t.same((await show(`listeners/${listener}/stats`)).body, { stats })
    t.same((await show(`loadbalancers/${lb}/stats`)).body, { stats })
    t.equal((await show(`loadbalancers/${NOWHERE}/stats`)).status, 404)
    t.equal((await show(`loadbalancers/${lb}/stats?fields=x`)).status, 400)
    const admin = tokenOf('admin')
    const shown = await api.ask('GET', `/v2/octavia/amphorae/${live}`, undefined, admin)
    t.equal(keysOf(shown.body.amphora), sorted(AMPHORA_KEYS))
    t.match(shown.body.amphora, {
      loadbalancer_id: lb,
      status: 'ALLOCATED',
      role: 'STANDALONE',
      vrrp_ip: '10.0.0.5',
      vrrp_id: 1,
      cert_busy: false,
    })
    t.match(
      await api.ask(
        'GET',
        `/v2/octavia/amphorae?loadbalancer_id=${lb}&status=ALLOCATED&project_id=${OWN}`,
        undefined,
        admin,
      ),
      { body: { amphorae: [{ id: live }] } },
    )
    t.match(await api.ask('GET', '/v2/octavia/amphorae?status=ERROR', undefined, admin), { body: { amphorae: [] } })
  })
  await t.test('the status tree', async t => {
    const { body } = await show(`loadbalancers/${lb}/status`)
    t.match(body, {
      statuses: {
        loadbalancer: {
          id: lb,
          name: 'renamed',
          listeners: [
            { id: listener, pools: [{ id: pool, health_monitor: { type: 'HTTP' }, members: [] }] },
            { pools: [{ name: 'nested', members: [{ address: '10.9.0.1', protocol_port: 1 }, {}] }] },
          ],
        },
      },
    })
    t.same((await show(`loadbalancers/${lb}/statuses`)).body, body)
  })
})
