import fc from 'fast-check'
import t from 'tap'
import { ApiRefusal } from '../../../controller/cli/api-client.js'
import type { Facts, Listener, Member, Monitor, Policy, Pool } from '../../../controller/cli/commands/explain/facts.js'
import { gather } from '../../../controller/cli/commands/explain/gather.js'
import { explainFacts } from '../../../controller/cli/commands/explain/report.js'
import { tokenRequest } from '../../../controller/cli/credentials.js'

const SINCE = '2026-11-25T12:01:03'
const because = (text: string) => ({ text, since: SINCE })
const well = {
  provisioning_status: 'ACTIVE',
  operating_status: 'ONLINE',
  operating_reason: null,
  admin_state_up: true,
}
const monitor: Monitor = {
  ...well,
  ...{ id: 'h', name: null, type: 'HTTP', timeout: 3, http_method: 'GET', url_path: '/health', expected_codes: '200' },
  pools: [{ id: 'p' }],
}
const aMember = (fields: Partial<Member> = {}): Member => ({
  ...well,
  ...{
    id: 'm1',
    name: '',
    address: '10.0.0.5',
    subnet_id: null,
    protocol_port: 8080,
    weight: 1,
    monitor_address: null,
    monitor_port: null,
  },
  ...fields,
})
const failing = (text: string, fields: Partial<Member> = {}) =>
  aMember({ operating_status: 'ERROR', operating_reason: because(text), ...fields })
const aPool = (everyMember: Member[], fields: Partial<Pool> = {}): Pool => ({
  ...well,
  ...{ id: 'p', name: 'app', protocol: 'HTTP', members: [], loadbalancers: [{ id: 'lb' }], monitor, everyMember },
  ...fields,
})
const listener: Listener = {
  ...well,
  ...{ id: 'l', name: '', protocol: 'HTTP', protocol_port: 80, default_pool_id: 'p', connection_limit: -1 },
}
const policy: Policy = {
  ...well,
  ...{ id: 'y', name: 'api', action: 'REJECT', listener_id: 'l', redirect_pool_id: null, rules: [{ id: 'r' }] },
}
const facts = (fields: Partial<Facts> = {}, balancer: Partial<Facts['loadBalancer']> = {}): Facts => ({
  loadBalancer: { ...well, id: 'lb', name: 'web', vip_address: '10.1.0.1', ...balancer },
  listeners: [listener],
  policies: [],
  pools: [aPool([aMember()])],
  focus: { kind: 'load balancer', id: 'lb' },
  requestedAt: null,
  now: '2026-11-25T12:30:00.000Z',
  ...fields,
})
const degraded = {
  operating_status: 'DEGRADED',
  operating_reason: because('Pool p: 1 of 2 members is down: 10.0.0.5:8080'),
}
const withMember = (member: Member) => facts({ pools: [aPool([member, aMember({ id: 'm2' })], degraded)] }, degraded)

t.test('the whole text for a member that refuses connections', async t => {
  const { lines, works } = explainFacts(withMember(failing('Layer4 connection problem: Connection refused')))
  t.notOk(works)
  t.strictSame(lines, [
    `load balancer web (lb): DEGRADED since ${SINCE} UTC: Pool p: 1 of 2 members is down: 10.0.0.5:8080`,
    '  listener HTTP 80 (l): ONLINE',
    `  pool app (p): DEGRADED since ${SINCE} UTC: Pool p: 1 of 2 members is down: 10.0.0.5:8080`,
    `    member 10.0.0.5:8080: ERROR since ${SINCE} UTC: Layer4 connection problem: Connection refused`,
    '    member 10.0.0.5:8080: ONLINE',
    'First cause: nothing listens on 10.0.0.5:8080, as seen from the amphora.',
    `What to do: start the server there, on an address other than 127.0.0.1, or correct the address or port of the member; check there: ss -ltn 'sport = :8080'`,
    'Checked: the load balancer and its last change, 1 listener, 0 L7 policies, 1 pool, 2 members.',
  ])
})

t.test('each cause has its words and its remedy', async t => {
  const alone = (member: Member) => facts({ pools: [aPool([member])] })
  const udp: Listener = { ...listener, protocol: 'UDP', protocol_port: 53 }
  const overUdp = (words: string, type = 'UDP-CONNECT') =>
    facts({
      listeners: [udp],
      pools: [aPool([failing(words)], { protocol: 'UDP', monitor: { ...monitor, type, url_path: '/ping?pong' } })],
    })
  const cases: [string, Facts, boolean, RegExp, RegExp][] = [
    [
      'no UDP server',
      overUdp('Layer4 connection problem: Connection refused'),
      false,
      /nothing listens/,
      /ss -lun 'sport/,
    ],
    [
      'no SCTP server',
      overUdp('Layer4 connection problem: Connection refused (ABORT)', 'SCTP'),
      false,
      /nothing/,
      /-lSn/,
    ],
    ['a TCP monitor', overUdp('Layer4 connection problem: Connection refused', 'TCP'), false, /nothing/, /ss -ltn/],
    [
      'no answer',
      overUdp('Layer7 timeout'),
      false,
      /does not answer what the health/,
      /the payload .* longer than 3 s/,
    ],
    ['a wrong answer', overUdp('Layer7 invalid response'), false, /answers with something else/, /after the question/],
    ['UDP by HTTP', overUdp('Layer7 invalid response', 'HTTP'), false, /not HTTP/, /type TCP/],
    [
      'the limit of flows',
      facts({ listeners: [{ ...udp, operating_status: 'DEGRADED', connection_limit: 5 }] }, degraded),
      false,
      /port 53 has as many flows as connection_limit allows \(5\)/,
      /--connection-limit N l/,
    ],
    [
      'a UDP listener without a pool',
      facts({ listeners: [{ ...udp, default_pool_id: null }], pools: [] }),
      false,
      /so it refuses clients\./,
      /--default-pool POOL l/,
    ],
    [
      'a UDP pool without a member',
      facts({ listeners: [udp], pools: [aPool([], { protocol: 'UDP' })] }),
      false,
      /no member, so its clients are refused/,
      /member create/,
    ],
    ['all is well', facts(), true, /^All is well with the load balancer\.$/m, /^Checked: /m],
    ['a firewall', withMember(failing('Layer4 timeout')), false, /10\.0\.0\.5:8080 does not answer/, /firewall/],
    ['no route', withMember(failing('Layer4 connection problem: No route to host')), false, /no route to/, /subnet_id/],
    [
      '404',
      withMember(failing('Layer7 wrong status: HTTP 404')),
      false,
      /answers GET \/health with 404; .* expects 200/,
      /--url-path PATH --expected-codes 404 h/,
    ],
    [
      '503',
      withMember(failing('Layer7 wrong status: HTTP 503')),
      false,
      /with 503/,
      /curl -i 'http:\/\/10\.0\.0\.5:8080\/health'/,
    ],
    [
      'a path with a command',
      facts({
        pools: [aPool([failing('Layer7 wrong status: HTTP 503')], { monitor: { ...monitor, url_path: "/$(id)';id" } })],
      }),
      false,
      /with 503/,
      /curl -i 'http:\/\/10\.0\.0\.5:8080\/\$\(id\)'\\'';id'$/m,
    ],
    [
      'TLS',
      withMember(failing('Layer6 invalid response: SSL handshake failure')),
      false,
      /TLS handshake/,
      /type HTTP or TCP/,
    ],
    ['slow', withMember(failing('Layer7 timeout')), false, /in time/, /longer than 3 s/],
    ['not HTTP', withMember(failing('Layer7 invalid response')), false, /not HTTP/, /type TCP/],
    ['closes', withMember(failing('Socket error: Connection reset by peer')), false, /closes them/, /log/],
    [
      'another port is checked',
      withMember(failing('Layer4 timeout', { monitor_port: 9, monitor_address: 'fd00::1' })),
      false,
      /\[fd00::1\]:9 does not/,
      /port 9 /,
    ],
    [
      'an older agent',
      withMember(failing('The health check fails')),
      false,
      /the health check of 10\.0\.0\.5:8080 fails/,
      /log/,
    ],
    [
      'a fault',
      facts({}, { provisioning_status: 'ERROR', fault: { text: 'No address is left.', retry_at: SINCE } }),
      false,
      /No address is left/,
      /tries again at/,
    ],
    [
      'pending for long',
      facts({ requestedAt: '2026-11-25T12:20:00' }, { provisioning_status: 'PENDING_UPDATE' }),
      false,
      /PENDING_UPDATE since 2026-11-25T12:20:00/,
      /krater doctor/,
    ],
    [
      'pending for a moment',
      facts({ requestedAt: '2026-11-25T12:29:58' }, { provisioning_status: 'PENDING_UPDATE' }),
      true,
      /All is well/,
      /Checked/,
    ],
    [
      'disabled',
      facts({}, { admin_state_up: false, operating_status: 'OFFLINE', operating_reason: because('disabled') }),
      false,
      /load balancer is disabled/,
      /set --enable lb/,
    ],
    [
      'silence',
      facts({}, { operating_reason: because('No amphora has been heard since noon') }),
      false,
      /No amphora has been heard since noon\./,
      /krater doctor/,
    ],
    ['no listener', facts({ listeners: [] }), false, /no listener/, /listener create/],
    [
      'a disabled listener',
      facts({ listeners: [{ ...listener, admin_state_up: false, operating_status: 'OFFLINE' }] }),
      true,
      /port 80 is disabled/,
      /listener set --enable l/i,
    ],
    [
      'the connection limit',
      facts({ listeners: [{ ...listener, operating_status: 'DEGRADED', connection_limit: 5 }] }, degraded),
      false,
      /connection_limit allows \(5\)/,
      /--connection-limit N l/,
    ],
    [
      'no pool',
      facts({ listeners: [{ ...listener, default_pool_id: null }], pools: [] }),
      false,
      /answers 503\./,
      /--default-pool POOL l/,
    ],
    [
      'no pool, but a policy',
      facts({ listeners: [{ ...listener, default_pool_id: null }], pools: [], policies: [policy] }),
      true,
      /where no L7 policy matches/,
      /--default-pool/,
    ],
    ['no member', facts({ pools: [aPool([])] }), false, /has no member/, /member create/],
    [
      'an unused pool',
      facts({ pools: [aPool([aMember()]), aPool([], { id: 'q', name: 'old', operating_status: 'OFFLINE' })] }),
      true,
      /no listener or L7 policy uses the pool old \(q\)/,
      /--default-pool q/,
    ],
    [
      'a disabled member',
      alone(aMember({ admin_state_up: false, operating_status: 'OFFLINE' })),
      false,
      /every member of the pool app \(p\) is disabled/,
      /enable one/,
    ],
    [
      'weight 0',
      withMember(aMember({ weight: 0, operating_status: 'DRAINING' })),
      false,
      /has weight 0/,
      /--weight 1 p m1/,
    ],
    [
      'a policy without rule',
      facts({ policies: [{ ...policy, rules: [] }] }),
      true,
      /policy api \(y\) has no rule, so it does nothing/,
      /l7rule create .* y/,
    ],
    [
      'a disabled policy',
      facts({ policies: [{ ...policy, admin_state_up: false, operating_status: 'OFFLINE' }] }),
      true,
      /policy api \(y\) is disabled/,
      /--enable y/,
    ],
  ]
  for (const [name, given, works, cause, remedy] of cases) {
    const explained = explainFacts(given)
    const text = explained.lines.join('\n')
    t.equal(explained.works, works, name)
    t.match(text, cause, name)
    t.match(text, remedy, name)
  }
})

t.test('an object below the load balancer is explained by itself', async t => {
  const given = withMember(failing('Layer4 timeout'))
  const about = (kind: Facts['focus']['kind'], id: string) => explainFacts({ ...given, focus: { kind, id } })
  t.match(about('member', 'm1'), { works: false })
  t.match(about('member', 'm1').lines.join('\n'), /First cause: 10\.0\.0\.5:8080 does not answer/)
  t.notMatch(about('member', 'm2').lines.join('\n'), /Layer4/)
  t.match(about('pool', 'p').works, false)
  t.match(about('health monitor', 'h').lines.join('\n'), /does not answer/)
})

t.test('names cannot mislead the reader, and thousands of members do not flood the terminal', async t => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), name => {
      const { lines } = explainFacts(facts({ pools: [aPool([failing(name)], { name })] }, { name, ...degraded }))
      return lines.every(line => !/(?!\t)[\p{Cc}\u2028\u202e]/u.test(line))
    }),
    { numRuns: 100 },
  )
  const many = Array.from({ length: 2_000 }, (_, i) => failing('Layer4 timeout', { id: `m${i}` }))
  const { lines } = explainFacts(facts({ pools: [aPool(many)] }, degraded))
  t.ok(lines.length < 40, `${lines.length} lines`)
})

t.test('an ambiguous or unknown name is refused', async t => {
  const api = (objects: Record<string, object[]>) => ({
    ...{ projectId: 'p', token: '', urlOf: () => '' },
    request: async (_: string, __: string, path: string) => {
      const plural = /\/([a-z0-9]+)\?/.exec(path)?.[1]
      if (plural === undefined) throw new ApiRefusal(403, 'Forbidden')
      return { [plural]: objects[plural] ?? [] }
    },
  })
  const above = { loadbalancers: [{ id: 'lb' }] }
  const { loadBalancer } = facts()
  const whole = { loadbalancers: [loadBalancer], listeners: [{ ...listener, ...above }], pools: [aPool([])] }
  const { focus } = await gather(api(whole), 'web')
  t.same(focus, { kind: 'load balancer', id: 'lb' }, 'a load balancer comes before what it has')
  await t.rejects(gather(api({ listeners: [{ id: 'l', ...above }], pools: [{ id: 'p', ...above }] }), 'web'), {
    message: 'Several objects are called web; give an id:\n  listener l\n  pool p',
    exitStatus: 2,
  })
  await t.rejects(gather(api({}), '5e1f1ad0-0000-4000-8000-000000000001'), { message: /There is no load balancer/ })
})

t.test('credentials of each kind become a request for a token', async t => {
  const url = { auth_url: 'http://k/v3' }
  t.match(tokenRequest({ ...url, username: 'u', password: 'x', project_name: 'p' }), {
    auth: {
      identity: {
        methods: ['password'],
        password: { user: { name: 'u', password: 'x', domain: { name: 'Default' } } },
      },
      scope: { project: { name: 'p', domain: { name: 'Default' } } },
    },
  })
  t.match(tokenRequest({ ...url, token: 't', project_id: 'p' }), {
    auth: { identity: { methods: ['token'], token: { id: 't' } }, scope: { project: { id: 'p' } } },
  })
  const application = tokenRequest({ ...url, application_credential_id: 'a', application_credential_secret: 's' })
  t.match(application.auth.identity, {
    methods: ['application_credential'],
    application_credential: { id: 'a', secret: 's' },
  })
  t.notOk('scope' in application.auth)
})
