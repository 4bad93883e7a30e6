import t from 'tap'
import { at } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import {
  check,
  INTERMEDIATE,
  INVALID,
  IPV6_SUBNET,
  NOOP,
  REF,
  type Row,
  workshop,
} from '../../../support/inputs/load-balancer-options.js'

const LISTENER_PROTOCOLS = ['HTTP', 'HTTPS', 'TCP', 'TERMINATED_HTTPS', 'UDP', 'SCTP', 'PROMETHEUS']
const POOL_PROTOCOLS = ['HTTP', 'HTTPS', 'PROXY', 'PROXYV2', 'TCP', 'UDP', 'SCTP']
const MONITOR_TYPES = ['HTTP', 'HTTPS', 'PING', 'TCP', 'TLS-HELLO', 'UDP-CONNECT', 'SCTP']

t.test('listener protocols and pool protocols', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { listener, pool, made, put } = await workshop(api)
  const allowed: Record<string, string[]> = {
    TCP: ['TCP', 'HTTP', 'HTTPS', 'PROXY', 'PROXYV2'],
    HTTP: ['HTTP', 'PROXY', 'PROXYV2'],
    HTTPS: ['HTTPS', 'TCP', 'PROXY', 'PROXYV2'],
    TERMINATED_HTTPS: ['HTTP', 'PROXY', 'PROXYV2'],
    UDP: ['UDP'],
    SCTP: ['SCTP'],
    PROMETHEUS: [],
  }
  const pools = new Map<string, string>()
  for (const protocol of POOL_PROTOCOLS) pools.set(protocol, (await made(pool({ protocol }), 'pool')).id)
  for (const protocol of LISTENER_PROTOCOLS) {
    const tls = protocol === 'TERMINATED_HTTPS' ? { default_tls_container_ref: REF } : {}
    const bare = await made(listener({ protocol, ...tls }), 'listener')
    for (const [poolProtocol, id] of pools) {
      const works = allowed[protocol]?.includes(poolProtocol)
      const refusal =
        protocol === 'PROMETHEUS' ? /cannot have child objects/ : new RegExp(`'${poolProtocol}'.*'${protocol}'`)
      const created = await listener({ protocol, ...tls, default_pool_id: id })
      check(t, 'listener', created, [{ protocol, poolProtocol }, works ? { default_pool_id: id } : refusal], 201)
      const updated = await put('listener', bare.id, { default_pool_id: id })
      check(t, 'listener', updated, [{ protocol, poolProtocol }, works ? { default_pool_id: id } : refusal], 200)
      const free = await made(listener({ protocol, ...tls }), 'listener')
      const under = await pool({ protocol: poolProtocol, listener_id: free.id })
      check(t, 'pool', under, [{ protocol, poolProtocol }, works ? { listeners: [{ id: free.id }] } : refusal], 201)
    }
  }
})

t.test('health monitors', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { tryTo, make, pool, made, put } = await workshop(api)
  const valid = { delay: 5, timeout: 3, max_retries: 4 }
  await t.test('pool protocols and types', async t => {
    for (const protocol of POOL_PROTOCOLS) {
      const types =
        protocol === 'UDP' || protocol === 'SCTP'
          ? ['HTTP', 'PING', 'TCP', 'UDP-CONNECT', 'SCTP']
          : ['HTTP', 'HTTPS', 'PING', 'TCP', 'TLS-HELLO']
      for (const type of MONITOR_TYPES) {
        const { id } = await made(pool({ protocol }), 'pool')
        const refusal = new RegExp(`${type} .* ${protocol}`)
        const reply = await tryTo('healthmonitor', { pool_id: id, type, ...valid })
        check(t, 'healthmonitor', reply, [{ protocol, type }, types.includes(type) ? { type } : refusal], 201)
      }
    }
  })
  const rows: [string, Row][] = [
    ['HTTP', [{}, { http_method: 'GET', url_path: '/', expected_codes: '200', max_retries_down: 4 }]],
    ['HTTP', [{ max_retries_down: 2, http_method: 'HEAD', expected_codes: '200-204' }, { max_retries_down: 2 }]],
    ['HTTP', [{ expected_codes: '200 , 201,202' }, { expected_codes: '200 , 201,202' }]],
    ['HTTP', [{ expected_codes: '200-201,203' }, /attribute expected_codes/]],
    ['HTTP', [{ http_method: 'get' }, /Value should be one of: GET, HEAD/]],
    ['HTTP', [{ url_path: 'http://x/' }, /Value must be a valid URL Path string/]],
    ['HTTP', [{ http_version: '1.2' }, /Value should be one of: 1\.0, 1\.1/]],
    [
      'HTTP',
      [
        { http_version: 1.1, domain_name: 'a.example' },
        { http_version: 1.1, domain_name: 'a.example' },
      ],
    ],
    ['HTTP', [{ domain_name: 'a.example' }, /'http_version' must be specified/]],
    ['HTTP', [{ domain_name: 'a.example', http_version: 1.0 }, /'http_version' must be 1\.1 or higher/]],
    ['HTTP', [{ domain_name: 'a b', http_version: 1.1 }, /attribute domain_name/]],
    ['HTTP', [{ max_retries: 0 }, /greater or equal to 1/]],
    ['HTTP', [{ max_retries_down: 11 }, /lower or equal to 10/]],
    ['HTTP', [{ delay: -1 }, /greater or equal to 0/]],
    ['HTTP', [{ delay: null }, /attribute delay\. Value: 'None'\. Mandatory field missing\./]],
    ['HTTP', [{ timeout: null }, /attribute timeout\. .*Mandatory/]],
    ['HTTP', [{ max_retries: null }, /attribute max_retries\. .*Mandatory/]],
    ['HTTP', [{ type: null }, /attribute type\. .*Mandatory/]],
    ['TCP', [{}, { http_method: null, url_path: null, expected_codes: null }]],
    ['TCP', [{ url_path: '/' }, /not support url_path/]],
    ['PING', [{ http_method: 'GET', expected_codes: '200' }, /not support http_method, expected_codes/]],
    ['UDP-CONNECT', [{ delay: 2 }, /at least 3 seconds/]],
    ['UDP-CONNECT', [{ delay: 3 }, { delay: 3, url_path: null }]],
    ['UDP-CONNECT', [{ url_path: '/%00ping?%80' }, { url_path: '/%00ping?%80', expected_codes: null }]],
    ['UDP-CONNECT', [{ url_path: '/ping%2' }, /url_path of a UDP-CONNECT health monitor has a %/]],
    ['UDP-CONNECT', [{ url_path: `/${'a'.repeat(1_025)}` }, /more than 1024 bytes/]],
    ['UDP-CONNECT', [{ url_path: 'ping' }, /Value must be a valid URL Path string/]],
    ['UDP-CONNECT', [{ url_path: '/', http_method: 'GET' }, /does not support http_method: /]],
  ]
  for (const [type, [body, expected]] of rows) {
    const { id } = await made(pool({ protocol: type === 'UDP-CONNECT' ? 'UDP' : 'HTTP' }), 'pool')
    const asked = { pool_id: id, type, ...valid, ...body }
    check(t, 'healthmonitor', await tryTo('healthmonitor', asked), [{ type, ...body }, expected], 201)
  }
  const http = await make('healthmonitor', {
    pool_id: (await made(pool({ protocol: 'HTTP' }), 'pool')).id,
    type: 'HTTP',
    ...valid,
    http_method: 'HEAD',
  })
  const udp = await make('healthmonitor', {
    pool_id: (await made(pool({ protocol: 'UDP' }), 'pool')).id,
    type: 'UDP-CONNECT',
    ...valid,
  })
  const updates: [string, Row][] = [
    [
      http.id,
      [
        { http_method: null, url_path: null, expected_codes: null },
        { http_method: 'GET', url_path: '/' },
      ],
    ],
    [http.id, [{ domain_name: 'a.example' }, /'http_version' must be specified/]],
    [http.id, [{ http_version: 1.1 }, { http_version: 1.1 }]],
    [http.id, [{ domain_name: 'a.example' }, { domain_name: 'a.example', http_version: 1.1 }]],
    [http.id, [{ http_version: 1.0 }, /'http_version' must be 1\.1 or higher/]],
    [
      http.id,
      [
        { http_version: null, domain_name: null },
        { http_version: null, domain_name: null },
      ],
    ],
    [
      http.id,
      [
        { max_retries: 7, max_retries_down: null },
        { max_retries: 7, max_retries_down: 7 },
      ],
    ],
    [http.id, [{ delay: null }, /Mandatory/]],
    [http.id, [{ max_retries: null }, /Mandatory/]],
    [http.id, [{ type: 'TCP' }, /Unknown attribute for argument healthmonitor: type/]],
    [http.id, [{ pool_id: SUBNET }, /Unknown attribute for argument healthmonitor: pool_id/]],
    [udp.id, [{ delay: 1 }, /at least 3 seconds/]],
    [udp.id, [{ url_path: '/a?b' }, { url_path: '/a?b' }]],
    [udp.id, [{ url_path: '/%zz' }, /has a %/]],
    [udp.id, [{ url_path: null }, { url_path: null }]],
    [udp.id, [{ expected_codes: '200' }, /not support expected_codes/]],
  ]
  for (const [id, row] of updates) check(t, 'healthmonitor', await put('healthmonitor', id, row[0]), row, 200)
})

t.test('session persistence', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { pool, made, put } = await workshop(api)
  const whole = { cookie_name: null, persistence_timeout: null, persistence_granularity: null }
  const rows: [string, object | null, RegExp | object | null][] = [
    ['HTTP', null, null],
    ['HTTP', {}, /session_persistence\.type\. Value: 'None'\. Mandatory field missing\./],
    ['HTTP', { cookie_name: 'a' }, /session_persistence\.type\. .*Mandatory/],
    ['HTTP', { type: 'SOURCE_IP' }, { type: 'SOURCE_IP', ...whole }],
    ['HTTP', { type: 'HTTP_COOKIE' }, { type: 'HTTP_COOKIE', ...whole }],
    ['HTTP', { type: 'HTTP_COOKIE', cookie_name: 'mine' }, { type: 'HTTP_COOKIE', ...whole, cookie_name: 'mine' }],
    ['HTTP', { type: 'APP_COOKIE', cookie_name: 'mine' }, { type: 'APP_COOKIE', cookie_name: 'mine' }],
    ['TCP', { type: 'HTTP_COOKIE' }, /HTTP_COOKIE is not supported for TCP protocol pools.* Use SOURCE_IP/],
    ['HTTPS', { type: 'APP_COOKIE', cookie_name: 'a' }, /APP_COOKIE is not supported for HTTPS/],
    ['PROXY', { type: 'HTTP_COOKIE' }, { type: 'HTTP_COOKIE' }],
    ['HTTP', { type: 'APP_COOKIE' }, /cookie_name is required/],
    ['HTTP', { type: 'SOURCE_IP', cookie_name: 'a' }, INVALID],
    ['HTTP', { type: 'SOURCE_IP', persistence_timeout: 5 }, /only for UDP and SCTP pools, not HTTP/],
    ['HTTP', { type: 'SOURCE_IP', persistence_granularity: '255.0.0.0' }, /only for UDP and SCTP pools, not HTTP/],
    ['HTTP', { type: 'NONE' }, /Value should be one of: SOURCE_IP, HTTP_COOKIE, APP_COOKIE/],
    ['HTTP', { type: 'SOURCE_IP', bogus: 1 }, /Unknown attribute for argument pool\.session_persistence: bogus/],
    ['UDP', { type: 'HTTP_COOKIE' }, /HTTP_COOKIE is not supported for UDP/],
    ['SCTP', { type: 'APP_COOKIE', cookie_name: 'a' }, /APP_COOKIE is not supported for SCTP/],
    ['UDP', { type: 'SOURCE_IP', cookie_name: 'a' }, /Cookie names are not supported for UDP/],
    [
      'UDP',
      { type: 'SOURCE_IP', persistence_timeout: '60', persistence_granularity: '255.255.0.0' },
      { type: 'SOURCE_IP', cookie_name: null, persistence_timeout: 60, persistence_granularity: '255.255.0.0' },
    ],
    ['SCTP', { type: 'SOURCE_IP' }, { type: 'SOURCE_IP' }],
    ['UDP', { type: 'SOURCE_IP', persistence_granularity: '255.0.255.0' }, /Value should be a netmask/],
    ['UDP', { type: 'SOURCE_IP', persistence_timeout: -1 }, /greater or equal to 0/],
    ...['a b', 'a,b', 'a;b', 'a\\b', 'a\tb', 'a\r\nb', 'a(b', 'a"b', 'a=b', 'a/b', 'a{b', ''].map(
      (name): [string, object, RegExp] => [
        'HTTP',
        { type: 'APP_COOKIE', cookie_name: name },
        /session_persistence\.cookie_name/,
      ],
    ),
  ]
  for (const [protocol, session_persistence, expected] of rows) {
    const row: Row = [
      { protocol, session_persistence },
      expected instanceof RegExp ? expected : { session_persistence: expected },
    ]
    check(t, 'pool', await pool({ protocol, session_persistence }), row, 201)
  }
  const { id } = await made(
    pool({ protocol: 'HTTP', session_persistence: { type: 'APP_COOKIE', cookie_name: 'one' } }),
    'pool',
  )
  const bare = await made(pool({ protocol: 'HTTP' }), 'pool')
  const udp = await made(
    pool({ protocol: 'UDP', session_persistence: { type: 'SOURCE_IP', persistence_timeout: 5 } }),
    'pool',
  )
  const updates: [string, object | null, RegExp | object | null][] = [
    [id, { cookie_name: 'two' }, { type: 'APP_COOKIE', ...whole, cookie_name: 'two' }],
    [id, { type: 'APP_COOKIE' }, /cookie_name is required/],
    [id, { type: 'HTTP_COOKIE' }, { type: 'HTTP_COOKIE', ...whole }],
    [id, { type: 'SOURCE_IP' }, { type: 'SOURCE_IP', ...whole }],
    [id, { cookie_name: 'three' }, INVALID],
    [id, {}, null],
    [id, { cookie_name: 'three' }, /Mandatory/],
    [bare.id, { type: 'SOURCE_IP' }, { type: 'SOURCE_IP', ...whole }],
    [bare.id, null, null],
    [udp.id, { persistence_granularity: '255.255.255.0' }, { type: 'SOURCE_IP', persistence_timeout: null }],
    [udp.id, { type: 'HTTP_COOKIE' }, /not supported for UDP/],
  ]
  for (const [pool, session_persistence, expected] of updates) {
    const row: Row = [
      { session_persistence },
      expected instanceof RegExp ? expected : { session_persistence: expected },
    ]
    check(t, 'pool', await put('pool', pool, { session_persistence }), row, 200)
  }
})

t.test('pools: TLS towards members, and algorithms', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { pool, made, put } = await workshop(api)
  const none = { tls_ciphers: null, tls_versions: null, alpn_protocols: null }
  const defaults = {
    tls_ciphers: INTERMEDIATE,
    tls_versions: ['TLSv1.2', 'TLSv1.3'],
    alpn_protocols: ['h2', 'http/1.1', 'http/1.0'],
  }
  const rows: Row[] = [
    [{}, { tls_enabled: false, tls_container_ref: null, ...none }],
    [{ tls_enabled: true }, { tls_enabled: true, ...defaults }],
    [{ tls_enabled: true, tls_versions: ['TLSv1.3'], alpn_protocols: ['h2'] }, { tls_versions: ['TLSv1.3'] }],
    [
      { tls_container_ref: REF, ca_tls_container_ref: REF, crl_container_ref: REF },
      { crl_container_ref: REF, ...none },
    ],
    [{ crl_container_ref: REF }, /CA certificate reference is required/],
    [{ ca_tls_container_ref: '' }, /attribute ca_tls_container_ref/],
    [{ tls_container_ref: 'x'.repeat(256) }, /maximum character requirement of 255/],
    [{ tls_enabled: true, tls_ciphers: 'A B' }, /attribute tls_ciphers/],
    [{ tls_enabled: true, tls_ciphers: 'A:B' }, /OpenSSL finds no cipher, or no TLS_ suite, for tls_ciphers/],
    [{ tls_enabled: true, tls_versions: [] }, /Value should not be an empty list/],
    [{ tls_enabled: true, tls_versions: ['TLSv9'] }, /attribute tls_versions\[0\]/],
    [{ tls_enabled: true, alpn_protocols: ['spdy'] }, /Value should be a valid ALPN protocol ID/],
    [{ tls_enabled: true, alpn_protocols: [] }, /Value should not be an empty list/],
    [
      { protocol: 'UDP', tls_enabled: false },
      { tls_enabled: false, ...none },
    ],
    [{ protocol: 'UDP', tls_enabled: true }, /TLS options are not supported for UDP pools: tls_enabled/],
    [{ protocol: 'SCTP', tls_container_ref: REF, tls_versions: ['TLSv1.3'] }, /: tls_container_ref, tls_versions/],
    ...['ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP', 'SOURCE_IP_PORT'].map(
      (lb_algorithm): Row => [{ lb_algorithm }, { lb_algorithm }],
    ),
    [{ lb_algorithm: 'RANDOM' }, /Value should be one of: ROUND_ROBIN/],
    [{}, { deregistration_delay: 30 }],
    ...[0, 3600].map((deregistration_delay): Row => [{ deregistration_delay }, { deregistration_delay }]),
    ...[-1, 3601, 1.5, 'soon'].map((deregistration_delay): Row => [{ deregistration_delay }, /deregistration_delay/]),
  ]
  for (const row of rows) check(t, 'pool', await pool({ protocol: 'HTTP', ...row[0] }), row, 201)
  const { id } = await made(pool({ protocol: 'HTTP' }), 'pool')
  const updates: Row[] = [
    [{ tls_ciphers: null, tls_versions: null }, none],
    [{ tls_enabled: true }, defaults],
    [
      { tls_versions: ['TLSv1.1'], alpn_protocols: ['http/1.1'] },
      { tls_versions: ['TLSv1.1'], alpn_protocols: ['http/1.1'] },
    ],
    [{ tls_versions: null, alpn_protocols: null }, defaults],
    [{ crl_container_ref: REF }, /CA certificate reference is required/],
    [{ ca_tls_container_ref: REF, crl_container_ref: REF }, { crl_container_ref: REF }],
    [{ ca_tls_container_ref: null }, /CA certificate reference is required/],
    [
      { ca_tls_container_ref: null, crl_container_ref: null },
      { ca_tls_container_ref: null, crl_container_ref: null },
    ],
    [{ tls_enabled: null }, { tls_enabled: false }],
    [{ deregistration_delay: 5 }, { deregistration_delay: 5 }],
    [{ name: 'other' }, { deregistration_delay: 5 }],
    [{ deregistration_delay: null }, { deregistration_delay: 30 }],
    [{ deregistration_delay: 3601 }, /deregistration_delay/],
    [{ lb_algorithm: null }, /attribute lb_algorithm\. .*Mandatory/],
    [{ protocol: 'TCP' }, /Unknown attribute for argument pool: protocol/],
  ]
  for (const row of updates) check(t, 'pool', await put('pool', id, row[0]), row, 200)
})

t.test('members', async t => {
  const api = await startTestApi({
    ...NOOP,
    settings: { ...NOOP.settings, reserved_ips: ['10.66.0.1', '2001:db8::66'] },
  })
  t.teardown(api.stop)
  const { lb, pool, made, tryTo } = await workshop(api)
  const { id } = await made(pool({ protocol: 'HTTP' }), 'pool')
  const kind = `pools/${id}/member`
  const add = (body: object) => api.ask('POST', `/v2/lbaas/${kind}s`, { member: { protocol_port: 80, ...body } })
  const rows: Row[] = [
    [
      { address: '10.0.0.1' },
      { weight: 1, backup: false, monitor_address: null, vnic_type: 'normal', subnet_id: null },
    ],
    [
      { address: '10.0.0.2', weight: '256', backup: 'on' },
      { weight: 256, backup: true },
    ],
    [{ address: '10.0.0.3', weight: 257 }, /lower or equal to 256/],
    [{ address: '10.0.0.3', protocol_port: 0 }, /greater or equal to 1/],
    [{ address: '10.0.0.3', monitor_port: 65536 }, /lower or equal to 65535/],
    [{ address: 'web' }, /Value should be IPv4 or IPv6 format/],
    [
      { address: '10.66.0.1' },
      /^10\.66\.0\.1 is not a valid option for member address: the operator has reserved it\. Use an address/,
    ],
    [{ address: '::ffff:10.66.0.1' }, /is not a valid option for member address/],
    [{ address: '2001:DB8:0::66' }, /is not a valid option for member address/],
    [{ address: '10.0.0.4', monitor_address: '10.66.0.1' }, /not a valid option for member monitor_address/],
    [{ address: '169.254.169.254' }, { address: '169.254.169.254' }],
    [{ address: '2001:DB8::A' }, { address: '2001:DB8::A' }],
    [{ address: '10.0.0.5', request_sriov: true }, /flavor of the load balancer does not allow SR-IOV members/],
    [{ address: '10.0.0.5', description: 'x' }, /Unknown attribute for argument member: description/],
  ]
  for (const row of rows) check(t, 'member', await add(row[0]), row, 201)

  const batch = await api.ask('PUT', `/v2/lbaas/${kind}s?additive_only=true`, {
    members: [{ address: '10.0.0.6', protocol_port: 80, request_sriov: true }],
  })
  check(t, 'members', batch, [{ request_sriov: true }, /does not allow SR-IOV members/], 202)
  const nested = {
    name: 'n',
    protocol: 'HTTP',
    lb_algorithm: 'ROUND_ROBIN',
    members: [{ address: '10.0.0.6', protocol_port: 80, request_sriov: true }],
  }
  check(
    t,
    'pool',
    await tryTo('pool', { loadbalancer_id: lb, ...nested }),
    [nested, /does not allow SR-IOV members/],
    201,
  )
  const tree = await tryTo('loadbalancer', { vip_subnet_id: SUBNET, pools: [nested] })
  check(t, 'loadbalancer', tree, [nested, /does not allow SR-IOV members/], 201)

  await api
    .database('flavor_profile')
    .insert({ id: SUBNET, name: 'p', provider_name: 'noop_driver', flavor_data: '{"allow_member_sriov": true}' })
  await api.database('flavor').insert({ id: SUBNET, name: 'f', flavor_profile_id: SUBNET })
  await api.database('load_balancer').where({ id: lb }).update({ flavor_id: SUBNET })
  check(t, 'member', await add({ address: '10.0.0.5', request_sriov: true }), [{}, { vnic_type: 'direct' }], 201)
  t.equal(at((await add({ address: '10.0.0.7' })).body, 'member', 'vnic_type'), 'normal')
})

t.test('one listener per transport protocol and port', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { listener } = await workshop(api)
  const tls = { default_tls_container_ref: REF }
  for (const protocol of ['TCP', 'UDP', 'SCTP']) {
    t.equal((await listener({ protocol, protocol_port: 80 })).status, 201, protocol)
  }
  for (const protocol of LISTENER_PROTOCOLS) {
    const holder = protocol === 'UDP' || protocol === 'SCTP' ? protocol : 'TCP'
    t.match(
      await listener({ protocol, protocol_port: 80, ...(protocol === 'TERMINATED_HTTPS' ? tls : {}) }),
      {
        status: 409,
        body: {
          faultstring: `Another Listener on this Load Balancer is already using protocol ${holder} and protocol_port 80`,
        },
      },
      protocol,
    )
  }
  t.equal((await listener({ protocol: 'TCP', protocol_port: 443 })).status, 201, 'TLS passes through a TCP listener')
})

t.test('IP versions of UDP and SCTP members', async t => {
  const api = await startTestApi({
    providers: ['noop_driver', 'strict'],
    settings: { default_provider: 'noop_driver' },
  })
  t.teardown(api.stop)
  const [FOUR, SIX] = ['10.0.0.1', '2001:db8::1']
  const member = (address: string, protocol_port = 80) => ({ address, protocol_port })
  for (const [provider, vips, four, six] of [
    ['noop_driver', {}, 201, 201],
    ['strict', {}, 201, 501],
    ['strict', { vip_subnet_id: IPV6_SUBNET }, 501, 201],
    ['strict', { additional_vips: [{ subnet_id: IPV6_SUBNET }] }, 201, 201],
  ] as const) {
    const { lb, made, pool } = await workshop(api, vips)
    // The strict provider supports fewer protocols, so the pools are created with the other provider.
    const pools = [
      await made(pool({ protocol: 'UDP' }), 'pool'),
      await made(pool({ protocol: 'SCTP' }), 'pool'),
      await made(pool({ protocol: 'HTTP' }), 'pool'),
    ]
    await api.database('load_balancer').where({ id: lb }).update({ provider })
    for (const { id, protocol } of pools) {
      for (const [address, status] of [
        [FOUR, protocol === 'HTTP' ? 201 : four],
        [SIX, protocol === 'HTTP' ? 201 : six],
      ] as const) {
        const reply = await api.ask('POST', `/v2/lbaas/pools/${id}/members`, { member: member(address) })
        t.equal(reply.status, status, `${provider} ${JSON.stringify(vips)} ${protocol} ${address}: ${reply.text}`)
        if (status === 501) {
          t.match(reply.body, {
            faultcode: 'Server',
            faultstring: /^Provider 'strict' does not support a requested option: Mixing/,
          })
          const batch = { members: [member(address, 81)] }
          t.equal((await api.ask('PUT', `/v2/lbaas/pools/${id}/members`, batch)).status, 501)
        }
      }
    }
  }
})
