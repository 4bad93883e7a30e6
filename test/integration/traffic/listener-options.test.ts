import type { AddressInfo } from 'node:net'
import { createServer as createTlsServer, connect as tlsConnect } from 'node:tls'
import t from 'tap'
import { aListener, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, ask, converse, serveOptions } from '../../support/clients/options-traffic.js'
import { selfSigned, startTellingMember } from '../../support/services/telling-member.js'

const member = await startTellingMember(t, 'member')
const silent = await startTellingMember(t, 'silent', { answersAfterMs: null })
const greeting = await startTellingMember(t, 'greeting', { banner: 'hello\n' })
const certificate = selfSigned()
const secured = createTlsServer(certificate, socket => socket.end('by TLS'))
await new Promise<void>(resolve => secured.listen(0, '127.0.0.1', resolve))
t.teardown(() => new Promise(resolve => secured.close(resolve)))

const POOL = { http: uuid(3, 1), tcp: uuid(3, 2), silent: uuid(3, 3), greeting: uuid(3, 4), tls: uuid(3, 5) }
const HEADERS = [
  'X-Forwarded-For',
  'X-Forwarded-Port',
  'X-Forwarded-Proto',
  'X-Forwarded-IP',
  'X-Client-IP',
  'X-Real-IP',
]
const tcp = { protocol: 'TCP', defaultPoolId: POOL.tcp } as const
const http = { defaultPoolId: POOL.http } as const

const balancer = await serveOptions(t, {
  facts: { answersMetrics: false },
  pools: [
    aPool(1, { members: [aLocalMember(1, member.port)] }),
    aPool(2, { protocol: 'TCP', members: [aLocalMember(2, member.port)] }),
    aPool(3, { protocol: 'TCP', members: [aLocalMember(3, silent.port)] }),
    aPool(4, { protocol: 'TCP', members: [aLocalMember(4, greeting.port)] }),
    aPool(5, { protocol: 'HTTPS', members: [aLocalMember(5, (secured.address() as AddressInfo).port)] }),
  ],
  listeners: [
    aListener(1, http),
    aListener(2, { ...http, insertHeaders: Object.fromEntries(HEADERS.map(name => [name, 'true'])) }),
    aListener(3, { ...http, allowedCidrs: ['127.0.0.2/32', '2001:db8::/32'] }),
    aListener(4, { ...tcp, allowedCidrs: ['192.0.2.0/24', '::1/128'] }),
    aListener(5, { ...tcp, allowedCidrs: [] }),
    aListener(6, { ...tcp, connectionLimit: 1 }),
    aListener(7, { ...tcp, timeoutClientData: 400 }),
    aListener(8, { ...tcp, defaultPoolId: POOL.silent, timeoutMemberData: 400 }),
    aListener(9, { ...http, defaultPoolId: POOL.silent, timeoutMemberData: 400 }),
    aListener(10, { ...tcp, defaultPoolId: POOL.greeting, timeoutTcpInspect: 700 }),
    aListener(11, { ...tcp, defaultPoolId: POOL.greeting }),
    aListener(12, { protocol: 'HTTPS', defaultPoolId: POOL.tls }),
    aListener(13, { protocol: 'PROMETHEUS' }),
    aListener(14, { protocol: 'PROMETHEUS', allowedCidrs: ['127.0.0.2/32'] }),
    aListener(15, { ...http, adminStateUp: false }),
    aListener(16, { protocol: 'PROMETHEUS', connectionLimit: 1 }),
    aListener(17, tcp),
  ],
})
const { port } = balancer

t.test('a listener also listens on the additional VIP', async t => {
  t.match(await ask(port(1)), { status: 200, told: { name: 'member' } })
  t.match(await ask(port(1), { host: '::1' }), { status: 200, told: { name: 'member' } })
})

t.test('inserted headers replace forged ones; X-Forwarded-For is appended to', async t => {
  const forged = Object.fromEntries(HEADERS.map(name => [name, 'forged']))
  const inserted = {
    'x-forwarded-for': 'forged, 127.0.0.3',
    'x-forwarded-port': String(port(2)),
    'x-forwarded-proto': 'http',
    'x-forwarded-ip': '127.0.0.3',
    'x-client-ip': '127.0.0.3',
    'x-real-ip': '127.0.0.3',
  }
  t.match((await ask(port(2), { from: '127.0.0.3', headers: forged })).told.headers, inserted)
  const plain = { ...inserted, 'x-forwarded-for': '127.0.0.3' }
  t.match((await ask(port(2), { from: '127.0.0.3' })).told.headers, plain)
  t.match((await ask(port(2), { host: '::1' })).told.headers, { 'x-forwarded-for': '::1', 'x-real-ip': '::1' })

  const without = (await ask(port(1))).told.headers ?? {}
  t.same(
    HEADERS.filter(name => name.toLowerCase() in without),
    [],
    'no header without the option',
  )
  t.match((await ask(port(1), { headers: forged })).told.headers, { 'x-forwarded-for': 'forged' })
})

t.test('only allowed_cidrs may connect', async t => {
  t.match(await ask(port(3), { from: '127.0.0.2' }), { status: 200 })
  await t.rejects(ask(port(3), { from: '127.0.0.1' }), /hang up|ECONNRESET/)
  await t.rejects(ask(port(3), { host: '::1' }), /hang up|ECONNRESET/)
  t.match(await (await converse(t, port(4), { host: '::1' })).say('x'), { name: 'member' })
  const refused = await converse(t, port(4)).catch(() => null)
  if (refused !== null) {
    refused.socket.on('error', () => {})
    t.ok((await refused.ended) < 2_000, 'the connection is closed without a byte')
    t.equal(refused.heard(), '')
  }
  t.match(await (await converse(t, port(5))).say('x'), { name: 'member' }, 'an empty list allows all')
})

t.test('beyond connection_limit, a connection waits for another to end', async t => {
  const first = await converse(t, port(6))
  t.match(await first.say('one'), { line: 'one' })
  const second = await converse(t, port(6))
  const answer = second.say('two')
  t.equal(await Promise.race([answer, first.say('three')]).then(({ line }) => line), 'three')
  t.match(await (await converse(t, port(17))).say('four'), { line: 'four' }, 'other listeners are not affected')
  first.socket.destroy()
  t.match(await answer, { line: 'two' })
})

t.test('client and member timeouts close idle connections', async t => {
  const [idle, patient, unanswered] = await Promise.all([7, 17, 8].map(number => converse(t, port(number))))
  if (!idle || !patient || !unanswered) throw new Error('three')
  await Promise.all([idle.say('x'), patient.say('x')])
  unanswered.socket.write('x\n')
  for (const { ended } of [idle, unanswered]) {
    const milliseconds = await ended
    t.ok(milliseconds >= 390 && milliseconds < 3_000, `${milliseconds} ms`)
  }
  t.match(await patient.say('y'), { line: 'y' }, 'a listener with the default timeout keeps its connection')
  t.match(await ask(port(9)), { status: 504 })
})

t.test('timeout_tcp_inspect delays a connection unless the client speaks', async t => {
  const [waiting, speaking, direct] = await Promise.all([10, 10, 11].map(number => converse(t, port(number))))
  if (!waiting || !speaking || !direct) throw new Error('three')
  speaking.socket.write('x\n')
  const [late, soon, atOnce] = await Promise.all([waiting.stirred, speaking.stirred, direct.stirred])
  t.ok(late >= 690, `${late} ms`)
  t.ok(soon < 600, `${soon} ms`)
  t.ok(atOnce < 600, `${atOnce} ms`)
})

t.test('an HTTPS listener passes TLS through to the member', async t => {
  const socket = tlsConnect({ host: '127.0.0.1', port: port(12), rejectUnauthorized: false, servername: 'any' })
  const said = await new Promise(resolve => socket.once('data', piece => resolve(String(piece))))
  t.equal(said, 'by TLS')
  t.equal(socket.getPeerX509Certificate()?.toString().trim(), certificate.cert.trim())
  socket.destroy()
})

t.test('with an older agent, a PROMETHEUS listener serves HAProxy’s own metrics and nothing else', async t => {
  const { status, body } = await ask(port(13), { path: '/metrics' })
  t.equal(status, 200)
  t.match(body, `haproxy_frontend_status{proxy="${uuid(2, 1)}",state="UP"} 1`)
  for (const path of ['/', '/stats', '/metrics/x', '/haproxy?stats', '/;csv', '/metrics;csv', '/admin?stats']) {
    t.match(await ask(port(13), { path }), { status: 404 }, path)
  }
  t.match(await ask(port(13), { path: '/metrics', method: 'POST' }), { status: 404 })
  t.match(await ask(port(1), { path: '/metrics' }), { told: { name: 'member' } }, 'other listeners have no metrics')
})

t.test('allowed_cidrs and connection_limit apply to a PROMETHEUS listener too', async t => {
  t.match(await ask(port(14), { path: '/metrics', from: '127.0.0.2' }), { status: 200 })
  await t.rejects(ask(port(14), { path: '/metrics' }), /hang up|ECONNRESET/)
  const holding = await converse(t, port(16))
  const waiting = ask(port(16), { path: '/metrics' })
  const first = await Promise.race([
    waiting.then(() => 'waiting'),
    ask(port(13), { path: '/metrics' }).then(() => 'other'),
  ])
  t.equal(first, 'other')
  holding.socket.destroy()
  t.match(await waiting, { status: 200 })
})

t.test('a disabled listener carries no traffic', async t => {
  await t.rejects(ask(port(15)), /ECONNREFUSED/)
})
