import t from 'tap'
import { at, idIn } from '../../../support/clients/json-answers.js'
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

const NO_TLS = { tls_ciphers: null, tls_versions: null, alpn_protocols: null }
const DEFAULTS = {
  tls_ciphers: INTERMEDIATE,
  tls_versions: ['TLSv1.2', 'TLSv1.3'],
  alpn_protocols: ['h2', 'http/1.1', 'http/1.0'],
}
const HTTPS = { protocol: 'TERMINATED_HTTPS', default_tls_container_ref: REF }
const PLAIN = ['HTTP', 'HTTPS', 'TCP', 'UDP', 'SCTP']

t.test('TLS of listeners', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { listener, made, put } = await workshop(api)
  const rows: Row[] = [
    [{ protocol: 'HTTP' }, { default_tls_container_ref: null, client_authentication: 'NONE', ...NO_TLS }],
    [{ ...HTTPS }, { default_tls_container_ref: REF, sni_container_refs: [], ...DEFAULTS }],
    [{ protocol: 'TERMINATED_HTTPS', sni_container_refs: [REF, `${REF}2`] }, { sni_container_refs: [REF, `${REF}2`] }],
    [{ ...HTTPS, tls_ciphers: null, tls_versions: null, alpn_protocols: null }, DEFAULTS],
    [{ ...HTTPS, tls_ciphers: 'ECDHE+AESGCM:!MD5', tls_versions: ['TLSv1.3'] }, { tls_ciphers: 'ECDHE+AESGCM:!MD5' }],
    [{ ...HTTPS, alpn_protocols: ['http/1.1'] }, { alpn_protocols: ['http/1.1'] }],
    [{ protocol: 'TERMINATED_HTTPS' }, /SNI or default certificate container reference must be provided/],
    [{ protocol: 'TERMINATED_HTTPS', client_ca_tls_container_ref: REF }, INVALID],
    [{ protocol: 'PROMETHEUS', client_ca_tls_container_ref: REF }, /with a client CA container reference/],
    [{ protocol: 'PROMETHEUS', default_tls_container_ref: REF, client_ca_tls_container_ref: REF }, NO_TLS],
    [{ protocol: 'PROMETHEUS' }, NO_TLS],
    ...PLAIN.flatMap((protocol): Row[] =>
      [
        { default_tls_container_ref: REF },
        { sni_container_refs: [REF] },
        { client_ca_tls_container_ref: REF },
        { client_crl_container_ref: REF },
      ].map(reference => [
        { protocol, ...reference },
        new RegExp(`references are not allowed on ${protocol} protocol listeners`),
      ]),
    ),
    [{ protocol: 'UDP', tls_ciphers: null, tls_versions: null, alpn_protocols: null }, NO_TLS],
    ...['UDP', 'SCTP'].flatMap((protocol): Row[] => [
      [{ protocol, tls_ciphers: 'AESGCM' }, /TLS options are not supported for .* listeners: tls_ciphers/],
      [{ protocol, tls_versions: ['TLSv1.3'], alpn_protocols: ['h2'] }, /listeners: tls_versions, alpn_protocols/],
      [{ protocol, client_authentication: 'OPTIONAL' }, /cannot be enabled without a client CA/],
      [{ protocol, hsts_max_age: 1 }, /HSTS feature can only be enabled for a TERMINATED_HTTPS listener/],
    ]),
    [{ ...HTTPS, client_authentication: 'MANDATORY' }, /cannot be enabled without a client CA/],
    [{ ...HTTPS, client_crl_container_ref: REF }, /CA reference is required to specify .* revocation list/],
    [
      {
        ...HTTPS,
        client_authentication: 'OPTIONAL',
        client_ca_tls_container_ref: REF,
        client_crl_container_ref: REF,
      },
      { client_authentication: 'OPTIONAL', client_ca_tls_container_ref: REF, client_crl_container_ref: REF },
    ],
    [{ ...HTTPS, client_authentication: 'SOMETIMES' }, /Value should be one of: NONE, OPTIONAL, MANDATORY/],
    [{ ...HTTPS, tls_ciphers: 'A;B' }, /attribute tls_ciphers/],
    [{ ...HTTPS, tls_ciphers: 'A:B' }, /OpenSSL finds no cipher, or no TLS_ suite, for tls_ciphers/],
    [{ ...HTTPS, tls_ciphers: 'TLS_A:AESGCM' }, /OpenSSL finds no cipher, or no TLS_ suite, for tls_ciphers/],
    [{ ...HTTPS, tls_ciphers: 'A:AESGCM' }, { tls_ciphers: 'A:AESGCM' }],
    [{ ...HTTPS, tls_ciphers: 'x'.repeat(2049) }, /maximum character requirement of 2048/],
    [{ ...HTTPS, tls_versions: [] }, /Value should not be an empty list/],
    [{ ...HTTPS, tls_versions: ['TLSv1.4'] }, /tls_versions\[0\].*one of: SSLv3, TLSv1, TLSv1\.1, TLSv1\.2, TLSv1\.3/],
    [{ ...HTTPS, alpn_protocols: [] }, /Value should not be an empty list/],
    [{ ...HTTPS, alpn_protocols: ['h3'] }, /Value should be a valid ALPN protocol ID/],
    [{ ...HTTPS, default_tls_container_ref: 'a b' }, /attribute default_tls_container_ref/],
    [{ ...HTTPS, sni_container_refs: [5] }, /attribute sni_container_refs\[0\]/],
  ]
  for (const row of rows) check(t, 'listener', await listener(row[0]), row, 201)

  const { id } = await made(listener(HTTPS), 'listener')
  const updates: Row[] = [
    [{ tls_ciphers: 'AESGCM', tls_versions: ['TLSv1.1'], alpn_protocols: ['h2'] }, { tls_versions: ['TLSv1.1'] }],
    [{ tls_ciphers: 'A:B' }, /OpenSSL finds no cipher/],
    [NO_TLS, DEFAULTS],
    [{ client_authentication: 'MANDATORY' }, /cannot be enabled without a client CA/],
    [{ client_crl_container_ref: REF }, /CA reference is required/],
    [{ client_ca_tls_container_ref: REF }, { client_ca_tls_container_ref: REF }],
    [{ client_authentication: 'MANDATORY' }, { client_authentication: 'MANDATORY' }],
    [{ client_crl_container_ref: REF }, { client_crl_container_ref: REF }],
    [{ client_ca_tls_container_ref: null }, /cannot be enabled without a client CA/],
    [{ client_ca_tls_container_ref: null, client_authentication: null }, /CA reference is required/],
    [
      { client_ca_tls_container_ref: null, client_authentication: null, client_crl_container_ref: null },
      { client_authentication: 'NONE', client_ca_tls_container_ref: null, client_crl_container_ref: null },
    ],
    [{ sni_container_refs: [REF] }, { sni_container_refs: [REF] }],
    [{ sni_container_refs: null }, { sni_container_refs: [] }],
    [{ tls_versions: [] }, /Value should not be an empty list/],
    [{ default_tls_container_ref: null }, { default_tls_container_ref: null }],
    [{ client_ca_tls_container_ref: REF }, /with a client CA container reference/],
  ]
  for (const row of updates) check(t, 'listener', await put('listener', id, row[0]), row, 200)
  for (const protocol of PLAIN) {
    const plain = await made(listener({ protocol }), 'listener')
    const refused: Row = [{ sni_container_refs: [REF] }, /not allowed on \w+ protocol listeners/]
    check(t, 'listener', await put('listener', plain.id, refused[0]), refused, 200)
    check(t, 'listener', await put('listener', plain.id, NO_TLS), [NO_TLS, NO_TLS], 200)
  }
})

t.test('HSTS', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { listener, made, put } = await workshop(api)
  const rows: Row[] = [
    [
      { ...HTTPS, hsts_max_age: 0 },
      { hsts_max_age: 0, hsts_include_subdomains: false, hsts_preload: false },
    ],
    [
      { ...HTTPS, hsts_max_age: 9, hsts_preload: true },
      { hsts_max_age: 9, hsts_preload: true },
    ],
    [{ ...HTTPS, hsts_max_age: -1 }, /greater or equal to 0/],
    [{ ...HTTPS, hsts_include_subdomains: true }, /only make sense if hsts_max_age is set/],
    [{ ...HTTPS, hsts_preload: true }, /only make sense if hsts_max_age is set/],
    [{ protocol: 'HTTP', hsts_max_age: 9 }, /can only be enabled for a TERMINATED_HTTPS listener/],
  ]
  for (const row of rows) check(t, 'listener', await listener(row[0]), row, 201)
  const { id } = await made(listener(HTTPS), 'listener')
  const updates: Row[] = [
    [{ hsts_preload: true }, /only make sense if hsts_max_age is set/],
    [{ hsts_max_age: 5 }, { hsts_max_age: 5 }],
    [
      { hsts_preload: true, hsts_include_subdomains: true },
      { hsts_preload: true, hsts_include_subdomains: true },
    ],
    [{ hsts_preload: null }, { hsts_preload: false, hsts_include_subdomains: true }],
    [{ hsts_max_age: null, hsts_preload: true }, /only make sense if hsts_max_age is set/],
    [{ hsts_max_age: null }, { hsts_max_age: null }],
  ]
  for (const row of updates) check(t, 'listener', await put('listener', id, row[0]), row, 200)
  const plain = await made(listener({ protocol: 'HTTP' }), 'listener')
  const refused: Row = [{ hsts_max_age: 1 }, /can only be enabled for a TERMINATED_HTTPS listener/]
  check(t, 'listener', await put('listener', plain.id, refused[0]), refused, 200)
})

t.test('inserted headers', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { listener, made, put } = await workshop(api)
  const forwarding = ['For', 'Port', 'Proto', 'IP'].map(name => `X-Forwarded-${name}`)
  const tls = ['Client-Verify', 'Client-Has-Cert', 'Client-DN', 'Client-CN', 'Issuer'].map(name => `X-SSL-${name}`)
  const more = ['Client-SHA1', 'Client-Not-Before', 'Client-Not-After'].map(name => `X-SSL-${name}`)
  const on = (names: string[]) => Object.fromEntries(names.map(name => [name, 'true']))
  const common = on([...forwarding, 'X-Client-IP', 'X-Real-IP'])
  const all = { ...common, ...on([...tls, ...more]) }
  const rows: Row[] = [
    [{ protocol: 'HTTP' }, { insert_headers: {} }],
    [{ protocol: 'HTTP', insert_headers: common }, { insert_headers: common }],
    [{ ...HTTPS, insert_headers: all }, { insert_headers: all }],
    [{ protocol: 'HTTP', insert_headers: { 'X-SSL-Issuer': 'true', Bad: 'true' } }, /HTTP listener: X-SSL-Issuer, Bad/],
    [{ ...HTTPS, insert_headers: { 'x-forwarded-for': 'true' } }, /TERMINATED_HTTPS listener: x-forwarded-for/],
    [
      { protocol: 'HTTP', insert_headers: { 'X-Real-IP': true } },
      /insert_headers\.X-Real-IP.*Value should be a string/,
    ],
    [{ protocol: 'HTTP', insert_headers: { 'X-Real-IP': 'x'.repeat(256) } }, /maximum character requirement of 255/],
    [{ protocol: 'HTTP', insert_headers: [] }, /Value should be an object/],
    ...['HTTPS', 'TCP', 'UDP', 'SCTP', 'PROMETHEUS'].map(
      (protocol): Row => [
        { protocol, insert_headers: common },
        new RegExp(`Header insertion is not supported for ${protocol} listeners`),
      ],
    ),
  ]
  for (const row of rows) check(t, 'listener', await listener(row[0]), row, 201)
  const { id } = await made(listener({ protocol: 'HTTP', insert_headers: common }), 'listener')
  const tcp = await made(listener({ protocol: 'TCP' }), 'listener')
  const refused: Row = [{ insert_headers: on(tls) }, /HTTP listener: X-SSL-Client-Verify/]
  check(t, 'listener', await put('listener', id, refused[0]), refused, 200)
  check(t, 'listener', await put('listener', id, { insert_headers: null }), [{}, { insert_headers: {} }], 200)
  check(t, 'listener', await put('listener', tcp.id, { insert_headers: common }), [{}, /TCP/], 200)
})

t.test('allowed_cidrs', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const FOUR = { allowed_cidrs: ['10.1.2.3/8', '10.0.0.0/8', '192.0.2.1'] }
  const four = { allowed_cidrs: ['10.0.0.0/8', '192.0.2.1/32'] }
  const SIX = { allowed_cidrs: ['2001:db8::1/32'] }
  const six = { allowed_cidrs: ['2001:db8::/32'] }
  const MIXED = { allowed_cidrs: ['10.0.0.0/8', '2001:db8::/32'] }
  const wrong = /^Validation failure: IP version of the allowed CIDR/
  const none: Row[] = [
    [{ allowed_cidrs: [] }, { allowed_cidrs: null }],
    [{ allowed_cidrs: null }, { allowed_cidrs: null }],
    [{ allowed_cidrs: ['10.0.0.0/33'] }, /Value should be IPv4 or IPv6 CIDR format/],
    [{ allowed_cidrs: '10.0.0.0/8' }, /Value should be a list/],
  ]
  for (const [vips, rows] of [
    [
      {},
      [
        [FOUR, four],
        [SIX, wrong],
        [MIXED, wrong],
      ],
    ],
    [
      { vip_subnet_id: IPV6_SUBNET },
      [
        [FOUR, wrong],
        [SIX, six],
        [MIXED, wrong],
      ],
    ],
    [
      { additional_vips: [{ subnet_id: IPV6_SUBNET }] },
      [
        [FOUR, four],
        [SIX, six],
        [MIXED, MIXED],
      ],
    ],
  ] as [object, Row[]][]) {
    const { listener, made, put, tryTo } = await workshop(api, vips)
    const { id } = await made(listener({ protocol: 'TCP' }), 'listener')
    for (const row of [...rows, ...none]) {
      check(t, 'listener', await listener({ protocol: 'TCP', ...row[0] }), row, 201)
      check(t, 'listener', await put('listener', id, row[0]), row, 200)
      const tree = { vip_subnet_id: SUBNET, ...vips, listeners: [{ protocol: 'TCP', protocol_port: 1, ...row[0] }] }
      const expected = row[1] instanceof RegExp ? row[1] : { listeners: [row[1]] }
      check(t, 'loadbalancer', await tryTo('loadbalancer', tree), [tree, expected], 201)
    }
  }
  await t.test('allowed_cidrs and vip_sg_ids exclude each other', async t => {
    const guarded = await workshop(api, { vip_sg_ids: [SUBNET] })
    const row: Row = [FOUR, /allowed_cidrs cannot be used on a load balancer that has vip_sg_ids/]
    check(t, 'listener', await guarded.listener({ protocol: 'TCP', ...FOUR }), row, 201)
    const open = await workshop(api)
    const made = await open.made(open.listener({ protocol: 'TCP', ...FOUR }), 'listener')
    const refused: Row = [{ vip_sg_ids: [SUBNET] }, /vip_sg_ids cannot be used .* with allowed_cidrs: listener/]
    check(t, 'loadbalancer', await open.put('loadbalancer', open.lb, refused[0]), refused, 200)
    t.equal((await open.put('listener', made.id, { allowed_cidrs: null })).status, 200)
    check(t, 'loadbalancer', await open.put('loadbalancer', open.lb, refused[0]), [{}, { vip_sg_ids: [SUBNET] }], 200)
  })
})

t.test('the amphora provider has TLS, and a valid option that it lacks is 501', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const { listener, made, put } = await workshop(api)
  const lacks = (reason: string) => ({
    status: 501,
    body: { faultstring: `Provider 'amphora' does not support a requested option: Listener ${reason}` },
  })
  const gap = lacks('tls_versions leaves out TLSv1.2 between others, which HAProxy cannot')
  t.match(await listener({ ...HTTPS, tls_versions: ['TLSv1.3', 'TLSv1.1'] }), gap)
  t.match(
    await listener({ ...HTTPS, tls_versions: ['SSLv3'] }),
    lacks('tls_versions allows only SSLv3, which HAProxy does not know'),
  )
  t.equal((await listener({ ...HTTPS, tls_versions: [] })).status, 400)
  const { id } = await made(listener(HTTPS), 'listener')
  t.match(await put('listener', id, { tls_versions: ['TLSv1.3', 'TLSv1.1'] }), gap)
  t.match(await put('listener', id, { tls_versions: ['TLSv1.3'] }), { status: 200 })
  // As in Octavia, listeners without TLS keep options of TLS that are no references.
  const unused = { tls_versions: ['TLSv1.3'], tls_ciphers: 'AESGCM', alpn_protocols: ['h2'] }
  t.match(await listener({ protocol: 'HTTP', ...unused }), { status: 201, body: { listener: unused } })
  const plain = await listener({ protocol: 'HTTP', ...NO_TLS, client_authentication: null, sni_container_refs: null })
  t.equal(plain.status, 201, 'null requests nothing')
  t.match(at(plain.body, 'listener'), { ...NO_TLS, client_authentication: 'NONE' })
  t.ok(idIn(plain, 'listener'))
})

t.test('options that the provider lacks are refused before any certificate is read', async t => {
  let checks = 0
  const counting = { check: async () => [{ ref: REF, reason: `looked at ${++checks} times` }] }
  const limited = await startTestApi({ certificates: { ...counting, close: () => undefined } })
  t.teardown(limited.stop)
  const scene = await workshop(limited)
  const lacking = { tls_versions: ['TLSv1.1', 'TLSv1.3'] }
  const unsupported = { status: 501 }
  t.match(await scene.listener({ ...HTTPS, ...lacking }), unsupported)
  const pool = { protocol: 'HTTP', tls_enabled: true, tls_container_ref: REF }
  t.match(await scene.pool({ ...pool, ...lacking }), unsupported)
  const listeners = [{ ...HTTPS, ...lacking, protocol_port: 443 }]
  t.match(await scene.tryTo('loadbalancer', { vip_subnet_id: SUBNET, listeners }), unsupported)
  const { id } = await scene.made(scene.pool({ protocol: 'HTTP' }), 'pool')
  t.match(await scene.put('pool', id, { tls_container_ref: REF, ...lacking }), unsupported)
  t.equal(checks, 0)
  t.match(await scene.listener(HTTPS), { status: 400, body: { faultstring: /looked at 1 times/ } }, 'others are read')
})

t.test('of concurrent updates that contradict each other, one is refused', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { listener, made, put } = await workshop(api)
  for (let round = 0; round < 5; round++) {
    const { id } = await made(listener({ ...HTTPS, client_ca_tls_container_ref: REF }), 'listener')
    const replies = await Promise.all([
      put('listener', id, { client_authentication: 'MANDATORY' }),
      put('listener', id, { client_ca_tls_container_ref: null }),
    ])
    t.same(replies.map(({ status }) => status).sort(), [200, 400])
  }
})

t.test('a listener that does not read cookies cannot use a pool that keeps clients by cookie', async t => {
  const api = await startTestApi(NOOP)
  t.teardown(api.stop)
  const { pool, listener, made, put } = await workshop(api)
  const refused: RegExp = /session_persistence HTTP_COOKIE\), which a TCP listener does not read\. Use SOURCE_IP\./
  const cookie = { type: 'HTTP_COOKIE' }
  const byCookie = await made(pool({ protocol: 'HTTP', session_persistence: cookie }), 'pool')
  const plain = await made(pool({ protocol: 'HTTP' }), 'pool')
  const tcp = await made(listener({ protocol: 'TCP', default_pool_id: plain.id }), 'listener')
  const fault = async (reply: ReturnType<typeof pool>) => {
    const { status, body } = await reply
    return status === 400 ? String(body.faultstring) : String(status)
  }
  t.match(await fault(listener({ protocol: 'TCP', default_pool_id: byCookie.id })), refused)
  t.match(
    await fault(
      listener({
        protocol: 'TCP',
        default_pool: { name: 'p', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', session_persistence: cookie },
      }),
    ),
    refused,
  )
  t.match(await fault(put('listener', tcp.id, { default_pool_id: byCookie.id })), refused)
  t.match(await fault(put('pool', plain.id, { session_persistence: cookie })), refused)
  t.equal(await fault(put('pool', plain.id, { session_persistence: { type: 'SOURCE_IP' } })), '200')
  const empty = await made(listener({ protocol: 'TCP' }), 'listener')
  t.match(await fault(pool({ listener_id: empty.id, protocol: 'HTTP', session_persistence: cookie })), refused)
  t.equal(await fault(listener({ protocol: 'HTTP', default_pool_id: byCookie.id })), '201')
})
