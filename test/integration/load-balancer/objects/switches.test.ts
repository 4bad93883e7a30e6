import t from 'tap'
import { at, idIn, type Json } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { check, NOOP, REF, type Row, workshop } from '../../../support/inputs/load-balancer-options.js'

t.test('settings forbid protocols and types, and set minimums and defaults', async t => {
  const api = await startTestApi({
    ...NOOP,
    settings: {
      ...NOOP.settings,
      allow_tls_terminated_listeners: false,
      allow_prometheus_listeners: 'no',
      allow_ping_health_monitors: false,
      udp_connect_min_delay: 10,
      minimum_tls_version: 'TLSv1.3',
      tls_cipher_prohibit_list: 'RC4-SHA,NULL',
      default_pool_ciphers: 'ECDHE+AESGCM',
    },
  })
  t.teardown(api.stop)
  const { listener, pool, made, put, tryTo } = await workshop(api)
  const listeners: Row[] = [
    [
      { protocol: 'TERMINATED_HTTPS', default_tls_container_ref: REF },
      /^The selected protocol is not allowed in this deployment: TERMINATED_HTTPS$/,
    ],
    [{ protocol: 'PROMETHEUS' }, /^The selected protocol is not allowed in this deployment: PROMETHEUS$/],
    [{ protocol: 'HTTP', tls_ciphers: 'A:RC4-SHA' }, /ciphers have been prohibited by an administrator: RC4-SHA$/],
    [{ protocol: 'HTTP', tls_ciphers: 'AESGCM:!RC4-SHA' }, { tls_ciphers: 'AESGCM:!RC4-SHA' }],
    [{ protocol: 'HTTP', tls_versions: ['TLSv1.2', 'TLSv1.3'] }, /less than the minimum: TLSv1\.2 /],
  ]
  for (const row of listeners) check(t, 'listener', await listener(row[0]), row, 201)
  const pools: Row[] = [
    [{ tls_enabled: true }, { tls_ciphers: 'ECDHE+AESGCM', tls_versions: ['TLSv1.3'] }],
    [{ tls_enabled: true, tls_versions: ['TLSv1.2'] }, /less than the minimum/],
    [{ tls_enabled: false, tls_versions: ['TLSv1.2'] }, { tls_versions: ['TLSv1.2'] }],
    [{ tls_enabled: true, tls_ciphers: 'NULL' }, /prohibited/],
  ]
  for (const row of pools) check(t, 'pool', await pool({ protocol: 'HTTP', ...row[0] }), row, 201)
  const old = await made(pool({ protocol: 'HTTP', tls_versions: ['TLSv1.2'] }), 'pool')
  check(t, 'pool', await put('pool', old.id, { tls_enabled: true }), [{}, /less than the minimum/], 200)
  const monitors: [string, Row][] = [
    ['HTTP', [{ type: 'PING', delay: 1 }, /^The selected type is not allowed in this deployment: PING$/]],
    ['UDP', [{ type: 'UDP-CONNECT', delay: 9 }, /at least 10 seconds/]],
    ['UDP', [{ type: 'UDP-CONNECT', delay: 10 }, { delay: 10 }]],
  ]
  for (const [protocol, row] of monitors) {
    const { id } = await made(pool({ protocol }), 'pool')
    const reply = await tryTo('healthmonitor', { pool_id: id, timeout: 1, max_retries: 1, ...row[0] })
    check(t, 'healthmonitor', reply, row, 201)
  }
  t.ok(idIn(await listener({ protocol: 'TCP' }), 'listener'))
})

t.test('settings limit the ways and networks of a requested VIP', async t => {
  const OTHER = '22222222-2222-4222-8222-222222222222'
  const ways = ['vip_port_id', 'vip_network_id', 'vip_subnet_id']
  for (const off of ways) {
    const api = await startTestApi({ settings: { [`allow_${off}`]: false } })
    const create = (body: object) => api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: body })
    for (const way of ways) {
      const refusal = new RegExp(`^The selected ${off} is not allowed in this deployment: ${SUBNET}$`)
      check(t, 'loadbalancer', await create({ [way]: SUBNET }), [{ way, off }, way === off ? refusal : {}], 201)
    }
    t.match(await create({}), {
      status: 400,
      body: {
        faultstring: `Validation failure: VIP must contain one of: ${ways.filter(way => way !== off).join(', ')}.`,
      },
    })
    await api.stop()
  }
  const settings = { valid_vip_networks: [SUBNET, OTHER], denied_vip_networks: OTHER.toUpperCase() }
  const api = await startTestApi({ settings })
  t.teardown(api.stop)
  const create = (id: string) => api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_network_id: id } })
  const refusal = /^Validation failure: Supplied VIP network_id is not allowed by the configuration/
  check(t, 'loadbalancer', await create(SUBNET), [{}, { vip_network_id: SUBNET }], 201)
  check(t, 'loadbalancer', await create(OTHER), [{}, refusal], 201)
  check(t, 'loadbalancer', await create('33333333-3333-4333-8333-333333333333'), [{}, refusal], 201)
})

t.test('settings switch off paging, sorting, filtering and field selection', async t => {
  const all = { allow_pagination: false, allow_sorting: false, allow_filtering: false, allow_field_selection: false }
  const names = async (settings: object) => {
    const api = await startTestApi({ settings: { ...settings } })
    for (const name of ['c', 'a', 'b']) {
      await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { name, vip_subnet_id: SUBNET } })
    }
    const list = async (query: string) => (await api.ask('GET', `/v2/lbaas/loadbalancers?${query}`)).body
    const found = (body: Json) => (at(body, 'loadbalancers') as Json[]).map(({ name }) => name)
    const result = {
      sorted: found(await list('sort=name')),
      filtered: found(await list('name=b')),
      page: found(await list('limit=2')),
      usual: found(await list('')),
      links: at(await list(''), 'loadbalancers_links'),
      fields: Object.keys(at(await list('fields=name'), 'loadbalancers', 0) as Json).length,
      wrong: (await api.ask('GET', '/v2/lbaas/loadbalancers?sort=bogus')).status,
    }
    await api.stop()
    return result
  }
  const made = ['c', 'a', 'b']
  const on = { sorted: ['a', 'b', 'c'], filtered: ['b'], page: ['c', 'a'], usual: made, links: [], fields: 1 }
  t.match(await names({}), { ...on, wrong: 400 })
  const off = await names(all)
  t.match(off, { sorted: made, filtered: made, page: made, usual: made, links: [], wrong: 400 })
  t.ok(off.fields > 20)
  t.match(await names({ pagination_max_limit: 1 }), {
    usual: ['c'],
    page: ['c'],
    links: [{ rel: 'next', href: /limit=1&marker=/ }],
  })
})
