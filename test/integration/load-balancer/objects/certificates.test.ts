import { randomUUID } from 'node:crypto'
import t from 'tap'
import {
  type BarbicanOptions,
  createBarbicanSource,
} from '../../../../controller/certificates/barbican/certificate-source.js'
import { createServiceUser } from '../../../../controller/certificates/barbican/service-user.js'
import { IdentityUnavailable } from '../../../../controller/identity/external/identity-unavailable.js'
import { CHECK_LIMITS } from '../../../../controller/inspection/checks.js'
import { callerOf, FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { at, type Json, type Reply } from '../../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { startTestApi } from '../../../support/clients/load-balancer-api.js'
import { startFaultyProxy } from '../../../support/faults/faulty-proxy.js'
import { buildChecker, makeBundle, makePair, makeRevocationList } from '../../../support/inputs/certificates.js'
import { NOOP, workshop } from '../../../support/inputs/load-balancer-options.js'
import { recordLog } from '../../../support/recorded-log.js'
import { createGate } from '../../../support/worlds/worker-scene.js'

/** A token may end in a number, which gives one user several tokens. */
const unnumbered = (token: string) => token.replace(/#\d+$/, '')
const LOAD_BALANCER = randomUUID()
const SERVICE_USER = 'user-admin,service'
const expired = new Set<string>()
const keyManager = await startTestKeyManager(
  { max_allowed_secret_in_bytes: 100_000, max_allowed_request_size_in_bytes: 200_000 },
  async token => (expired.has(token) ? null : callerOf(unnumbered(token))),
)
t.teardown(keyManager.stop)
const proxy = await startFaultyProxy(keyManager.url)
t.teardown(proxy.stop)
const program = await buildChecker(t.testdir({}))
const { log, text: logged } = recordLog()

let signIns = 0
let identityAway = false
const serviceUser = createServiceUser(async () => {
  if (identityAway) throw new IdentityUnavailable('Keystone is asleep')
  const now = new Date()
  const named = { id: SERVICE_USER, name: 'octavia', domain: { id: 'default', name: 'Default' } }
  const document = {
    user: named,
    issued_at: now,
    expires_at: new Date(now.getTime() + 3_600_000),
    roles: [{ id: 'a', name: 'admin' }],
  }
  return { token: `${tokenOf('admin,service', 'c'.repeat(32))}#${++signIns}`, document, date: undefined }
}, log)
const options: BarbicanOptions = {
  keyManager: { url: proxy.url, security: { insecure: false }, connectTimeoutSeconds: 2, answerSeconds: 10 },
  serviceUser,
  inspector: { inspectionMilliseconds: 20_000, program },
  log,
}
const source = createBarbicanSource(options)
t.teardown(source.close)
const api = await startTestApi({ ...NOOP, certificates: source })
t.teardown(api.stop)
const { lb, listener, pool, put, made, tryTo } = await workshop(api)

const root = makePair({ subject: '/CN=root' })
const web = makePair({ issuer: root })
const bundle = makeBundle(web)
const list = makeRevocationList(root)

const PEM = { payload_content_type: 'text/plain' }
const storeText = async (payload: string, token?: string) =>
  `${keyManager.url}/v1/secrets/${await keyManager.store({ ...PEM, payload }, token)}`
const storeBytes = async (bytes: Buffer, token?: string) => {
  const payload = bytes.toString('base64')
  const body = { payload, payload_content_type: 'application/octet-stream', payload_content_encoding: 'base64' }
  return `${keyManager.url}/v1/secrets/${await keyManager.store(body, token)}`
}
const storeContainer = async (
  parts: Record<string, string>,
  { type = 'certificate', token = tokenOf('member') } = {},
) => {
  const secret_refs = Object.entries(parts).map(([name, secret_ref]) => ({ name, secret_ref }))
  const reply = await keyManager.ask('POST', '/v1/containers', { type, secret_refs }, { token })
  if (reply.status !== 201) throw new Error(reply.text)
  return String(reply.body.container_ref)
}
const aclOf = async (ref: string, token?: string) =>
  (await keyManager.ask('GET', `${new URL(ref).pathname}/acl`, undefined, { token })).body.read as Json
const setAcl = (ref: string, read: Json) => keyManager.ask('PUT', `${new URL(ref).pathname}/acl`, { read })

/** A TLS listener's request. */
const https = (body: object) => listener({ protocol: 'TERMINATED_HTTPS', ...body })
const faultOf = ({ body }: Reply) => String(body.faultstring)
/** The requests that a call sends to the key manager, without tokens. */
const asked = async (body: () => Promise<unknown>) => {
  const before = proxy.requests.length
  await body()
  return proxy.requests.slice(before).map(({ method, path }) => `${method} ${path.replace(/[0-9a-f-]{36}/, '*')}`)
}
const listeners = async () => (at((await api.ask('GET', '/v2/lbaas/listeners')).body, 'listeners') as Json[]).length

const good = await storeBytes(bundle)
const authority = await storeText(root.certificate)
const crl = await storeText(list)

t.test('the API grants the service user access to a bundle, which then reads it', async t => {
  const ref = await storeBytes(bundle)
  const before = proxy.requests.length
  const { id } = await made(https({ default_tls_container_ref: ref }), 'listener')
  const sent = proxy.requests
    .slice(before)
    .map(({ method, path, token }) => [method, path.slice(48), token.split('@')[0]])
  t.same(sent, [
    ['GET', '', 'member'],
    ['GET', '/acl', 'member'],
    ['PUT', '/acl', 'member'],
    ['GET', '/payload', 'admin,service'],
  ])
  t.match(await aclOf(ref), { 'project-access': true, users: [SERVICE_USER] })
  t.match((await api.ask('GET', `/v2/lbaas/listeners/${id}`)).body, { listener: { default_tls_container_ref: ref } })
  t.same(
    await asked(() => made(https({ default_tls_container_ref: ref }), 'listener')),
    ['GET /v1/secrets/*', 'GET /v1/secrets/*/acl', 'GET /v1/secrets/*/payload'],
    'a second use leaves the ACL unchanged',
  )
})

t.test('the grant keeps the other entries of an ACL', async t => {
  const ref = await storeBytes(bundle)
  await setAcl(ref, { 'project-access': false, users: ['somebody'] })
  t.equal((await https({ default_tls_container_ref: ref })).status, 201)
  const acl = await aclOf(ref)
  t.equal(acl['project-access'], false)
  t.same([...(acl.users as string[])].sort(), ['somebody', SERVICE_USER])
})

t.test('certificate containers', async t => {
  const certificate = await storeText(web.certificate)
  const private_key = await storeText(web.privateKey)
  const intermediates = await storeText(root.certificate)
  const whole = await storeContainer({ certificate, private_key, intermediates })
  t.equal((await https({ sni_container_refs: [whole] })).status, 201)
  for (const ref of [whole, certificate, private_key, intermediates]) {
    t.match(await aclOf(ref), { users: [SERVICE_USER] }, ref)
  }
  t.equal((await pool({ protocol: 'HTTP', tls_container_ref: whole })).status, 201)
  const key = await storeText(makePair().privateKey)
  const cases: [string, string, RegExp][] = [
    ['another key', await storeContainer({ certificate, private_key: key }), /private key does not belong/],
    ['another type', await storeContainer({ certificate, private_key }, { type: 'generic' }), /type certificate/],
    ['SHA-1', await storeBytes(makeBundle(makePair({ issuer: root, args: ['-sha1'] }))), /over MD5, SHA-1/],
  ]
  for (const [name, ref, reason] of cases) {
    t.match(faultOf(await https({ default_tls_container_ref: ref })), reason, name)
  }
})

t.test('other users’ certificates look as if they did not exist', async t => {
  const token = tokenOf('member', FOREIGN)
  const [certificate, private_key] = [await storeText(web.certificate, token), await storeText(web.privateKey, token)]
  const [foreignSecret, foreignContainer] = [
    await storeBytes(bundle, token),
    await storeContainer({ certificate, private_key }, { token }),
  ]
  // Another user of the same project keeps this secret private.
  const kept = await storeBytes(bundle, tokenOf('member,her'))
  const secretPath = new URL(kept).pathname
  await keyManager.ask(
    'PUT',
    `${secretPath}/acl`,
    { read: { 'project-access': false } },
    { token: tokenOf('member,her') },
  )
  // A user may read a shared secret, but not pass it on.
  const shared = await storeBytes(bundle, token)
  const users = ['user-member', SERVICE_USER]
  await keyManager.ask('PUT', `${new URL(shared).pathname}/acl`, { read: { users } }, { token })
  const absent = [`${keyManager.url}/v1/secrets/${randomUUID()}`, `${keyManager.url}/v1/containers/${randomUUID()}`]
  const before = await listeners()
  for (const ref of [foreignSecret, foreignContainer, kept, shared, ...absent]) {
    const reply = await https({ default_tls_container_ref: ref })
    t.match(reply, { status: 400 }, ref)
    t.equal(faultOf(reply), `Could not retrieve certificate: ${ref} (it does not exist or you may not use it)`)
  }
  t.equal(await listeners(), before, 'nothing is stored')
  t.same(await aclOf(foreignSecret, token), { 'project-access': true }, 'the service user gains no access')
  t.same((await aclOf(kept, tokenOf('member,her'))).users, [])
})

t.test('the fault lists every bad reference of a tree, each once', async t => {
  const words = await storeText('just words')
  const large = await storeBytes(Buffer.alloc(70_000))
  const pending = String((await keyManager.ask('POST', '/v1/secrets', { name: 'later' })).body.secret_ref)
  const absent = `${keyManager.url}/v1/secrets/${randomUUID()}`
  const otherRoot = await storeText(makePair().certificate)
  const reply = await tryTo('loadbalancer', {
    vip_subnet_id: '11111111-1111-4111-8111-111111111111',
    listeners: [
      {
        protocol: 'TERMINATED_HTTPS',
        protocol_port: 443,
        default_tls_container_ref: words,
        sni_container_refs: [good, large, pending, absent, absent, 'https://elsewhere.test/v1/orders/7'],
        client_ca_tls_container_ref: otherRoot,
        client_crl_container_ref: crl,
        default_pool: {
          name: 'p',
          protocol: 'HTTP',
          lb_algorithm: 'ROUND_ROBIN',
          tls_container_ref: absent,
          ca_tls_container_ref: good,
          crl_container_ref: words,
        },
      },
    ],
  })
  t.equal(reply.status, 400)
  const [head, ...told] = faultOf(reply).split(/(?:: |, )(?=https?:)/)
  t.equal(head, 'Could not retrieve certificate')
  t.same(told, [
    `${words} (it is not a PKCS#12 bundle that can be read without a passphrase)`,
    `${large} (it is larger than 65536 bytes)`,
    `${pending} (it has no payload)`,
    `${absent} (it does not exist or you may not use it)`,
    'https://elsewhere.test/v1/orders/7 (it does not refer to a secret or container of the key manager)',
    `${good} (the CA certificate is not an X.509 certificate in PEM)`,
    `${crl} (the revocation list is not signed by the CA that is given with it)`,
  ])
  t.equal((at((await api.ask('GET', '/v2/lbaas/loadbalancers')).body, 'loadbalancers') as Json[]).length, 1)
})

t.test('every reference of a valid tree is looked up once', async t => {
  const references = {
    default_tls_container_ref: good,
    sni_container_refs: [good],
    client_ca_tls_container_ref: authority,
    client_crl_container_ref: crl,
  }
  const requests = await asked(async () => {
    const reply = await tryTo('loadbalancer', {
      vip_subnet_id: '11111111-1111-4111-8111-111111111111',
      listeners: [
        { protocol: 'TERMINATED_HTTPS', protocol_port: 443, ...references },
        { protocol: 'TERMINATED_HTTPS', protocol_port: 444, ...references },
      ],
      pools: [
        {
          name: 'p',
          protocol: 'HTTP',
          lb_algorithm: 'ROUND_ROBIN',
          tls_container_ref: good,
          ca_tls_container_ref: authority,
          crl_container_ref: crl,
        },
      ],
    })
    t.equal(reply.status, 201, reply.text)
  })
  t.equal(requests.filter(line => line === 'GET /v1/secrets/*/payload').length, 3)
  const container = `${keyManager.url}/v1/containers/${randomUUID()}`
  t.match(
    faultOf(await https({ default_tls_container_ref: good, client_ca_tls_container_ref: container })),
    /it must refer to a secret/,
  )
})

t.test('updates look up only the references that they change', async t => {
  const values = {
    default_tls_container_ref: good,
    client_ca_tls_container_ref: authority,
    client_crl_container_ref: crl,
  }
  const { id } = await made(https(values), 'listener')
  const { id: poolId } = await made(pool({ protocol: 'HTTP', tls_container_ref: good }), 'pool')
  const nothing = [
    ['listener', id, { name: 'new' }],
    ['listener', id, { ...values, sni_container_refs: [good] }],
    ['listener', id, { sni_container_refs: [] }],
    ['listener', id, { client_crl_container_ref: null }],
    ['pool', poolId, { tls_container_ref: good, description: 'd' }],
    ['pool', poolId, { tls_container_ref: null }],
    ['listener', id, { default_tls_container_ref: good, client_crl_container_ref: null, hsts_preload: true }],
  ] as const
  for (const [kind, of, body] of nothing) t.same(await asked(() => put(kind, of, body)), [], JSON.stringify(body))

  t.equal((await put('listener', id, { client_crl_container_ref: crl })).status, 200)
  const words = await storeText('words')
  const refused = await put('listener', id, { client_crl_container_ref: words, name: 'never' })
  t.match(refused, { status: 400 })
  t.equal(faultOf(refused), `Could not retrieve certificate: ${words} (it is not a revocation list in PEM)`)
  const otherRoot = await storeText(makePair().certificate)
  t.match(
    faultOf(await put('listener', id, { client_ca_tls_container_ref: otherRoot })),
    new RegExp(`^Could not retrieve certificate: ${crl} .the revocation list is not signed`),
    'the stored revocation list must fit the new authority',
  )
  t.match((await api.ask('GET', `/v2/lbaas/listeners/${id}`)).body, { listener: { name: 'new', ...values } })
  t.match(faultOf(await put('pool', poolId, { ca_tls_container_ref: words })), /not an X.509 certificate in PEM/)

  t.same(
    await asked(() => put('listener', id, { client_crl_container_ref: words, tls_versions: [] })),
    [],
    'the other rules are checked first',
  )
  t.same(await asked(() => listener({ protocol: 'HTTP' })), [], 'without a reference, nothing is looked up')
})

t.test('only the id of a reference counts, not its host', async t => {
  const trap = await startFaultyProxy('http://127.0.0.1:9')
  t.teardown(trap.stop)
  const elsewhere = `${trap.url}/v1/secrets/${good.slice(-36)}`
  const reply = await https({ default_tls_container_ref: elsewhere })
  t.equal(reply.status, 201)
  t.equal(at(reply.body, 'listener', 'default_tls_container_ref'), elsewhere)
  t.same(trap.requests, [])
})

t.test('an expired token of the service user is renewed', async t => {
  const before = signIns
  const { token } = await serviceUser.signedIn()
  expired.add(token)
  t.equal((await https({ default_tls_container_ref: good })).status, 201)
  t.equal(signIns, before + 1)
  t.equal((await https({ default_tls_container_ref: good })).status, 201)
  t.equal(signIns, before + 1, 'the new token is kept')
})

t.test('a failing key manager means 503, and nothing is stored', async t => {
  t.teardown(() => proxy.behave(() => 'pass'))
  const count = await listeners()
  const ref = await storeBytes(bundle)
  const body = { default_tls_container_ref: ref, sni_container_refs: [good] }
  const away = /^The key manager does not answer, so certificate references cannot be checked; nothing was changed/
  for (const status of [500, 503, 302, 400]) {
    proxy.behave(() => ({ status, body: '{}' }))
    t.match(await https(body), { status: 503, body: { faultcode: 'Server', faultstring: away } }, `${status}`)
  }
  proxy.behave(() => ({ status: 200, body: '<html>' }))
  t.match(await https(body), { status: 503, body: { faultstring: away } }, 'the address belongs to another service')
  proxy.behave(({ path }) => (path.endsWith('/payload') ? { status: 401, body: '{}' } : 'pass'))
  t.match(await https(body), { status: 503, body: { faultstring: away } }, 'the key manager rejects the service user')
  proxy.behave(({ path }) => (path.endsWith('/payload') ? { status: 403, body: '{}' } : 'pass'))
  t.match(await https(body), { status: 400, body: { faultstring: /service cannot read its payload/ } })
  proxy.behave(({ token }) => (token.startsWith('member') ? { status: 401, body: '{}' } : 'pass'))
  t.match(await https(body), { status: 400, body: { faultstring: /key manager does not accept your token/ } })
  proxy.behave(() => 'drop')
  t.match(await https(body), { status: 503, body: { faultstring: away } }, 'the key manager closes every connection')
  const once = new Set<string>()
  proxy.behave(({ path, method }) => {
    if (once.has(method + path)) return 'pass'
    once.add(method + path)
    return 'drop'
  })
  t.equal((await https(body)).status, 201, 'a request is retried once when its connection is lost')
  proxy.behave(() => 'pass')
  identityAway = true
  expired.add((await serviceUser.signedIn()).token)
  t.match(await https(body), { status: 503, body: { faultstring: away } }, 'no Keystone answers')
  identityAway = false
  t.equal(await listeners(), count + 1)
  t.equal((await https(body)).status, 201)
})

t.test('time and number limits of certificate checks', async t => {
  t.teardown(() => proxy.behave(() => 'pass'))
  const slow = createBarbicanSource({
    ...options,
    keyManager: { ...options.keyManager, answerSeconds: 0.2 },
    limits: { ...CHECK_LIMITS, maxReferences: 3 },
  })
  t.teardown(slow.close)
  const desired = (...certificates: string[]) => ({ certificates, authorities: [], revocationLists: [] })
  const asking = { token: tokenOf('member'), project: OWN, user: 'somebody' }
  proxy.behave(() => 'hang')
  await t.rejects(
    slow.check(asking, LOAD_BALANCER, desired(good)),
    { status: 503, message: /does not answer/ },
    'one slow answer',
  )
  const patient = createBarbicanSource({ ...options, limits: { ...CHECK_LIMITS, checkSeconds: 0.2 } })
  t.teardown(patient.close)
  await t.rejects(
    patient.check(asking, LOAD_BALANCER, desired(good)),
    { status: 503, message: /does not answer/ },
    'slow answers add up',
  )
  const narrow = createBarbicanSource({
    ...options,
    limits: { ...CHECK_LIMITS, maxChecks: 1, maxWaitingPerProject: 1, checkSeconds: 1 },
  })
  t.teardown(narrow.close)
  const first = t.rejects(narrow.check(asking, LOAD_BALANCER, desired(good)), {
    status: 503,
    message: /does not answer/,
  })
  const second = t.rejects(
    narrow.check(asking, LOAD_BALANCER, desired(good)),
    { status: 503, message: /Too many/ },
    'too many wait',
  )
  await t.rejects(narrow.check(asking, LOAD_BALANCER, desired(good)), {
    status: 503,
    message: /Too many certificate references/,
    headers: { 'Retry-After': '5' },
  })
  await Promise.all([first, second])
  const refs = Array.from({ length: 4 }, () => `${keyManager.url}/v1/secrets/${randomUUID()}`)
  await t.rejects(slow.check(asking, LOAD_BALANCER, desired(...refs)), {
    status: 400,
    message: /at most 3 certificates/,
  })
  const down = createBarbicanSource({ ...options, keyManager: { ...options.keyManager, url: 'http://127.0.0.1:9' } })
  t.teardown(down.close)
  await t.rejects(
    down.check(asking, LOAD_BALANCER, desired(good)),
    { status: 503, message: /does not answer/ },
    'none listens',
  )
})

t.test('slow references of one project delay no other project', async t => {
  t.teardown(() => proxy.behave(() => 'pass'))
  const gate = createGate()
  proxy.behave(({ token }) => (token.endsWith(OWN) ? gate.pass().then(() => 'drop' as const) : 'pass'))
  const shared = createBarbicanSource(options)
  t.teardown(shared.close)
  const desired = { certificates: [good], authorities: [], revocationLists: [] }
  const hostile = { token: tokenOf('member'), project: OWN, user: 'many' }
  const many = Array.from({ length: 48 }, () =>
    t.rejects(shared.check(hostile, LOAD_BALANCER, desired), { status: 503, message: /./ }),
  )
  let waiting = true
  const all = Promise.all(many).then(() => {
    waiting = false
  })
  const foreign = { certificates: [await storeBytes(bundle, tokenOf('member', FOREIGN))] }
  const asking = { token: tokenOf('member', FOREIGN), project: FOREIGN, user: 'one' }
  t.same(await shared.check(asking, LOAD_BALANCER, { ...desired, ...foreign }), [])
  t.ok(waiting, 'the slow project’s requests still wait')
  gate.open()
  await all
})

t.test('no token and no key is logged or stored', async t => {
  const all = ['listener', 'load_balancer_event'].map(table => `(SELECT json_agg(o)::text FROM ${table} o)`)
  const { rows } = await api.database.raw(`SELECT ${all.join(' || ')} AS text`)
  for (const where of [logged(), rows[0].text]) {
    t.notMatch(where, /admin,service@|#\d/)
    t.notMatch(where, new RegExp(`member@${OWN}`))
    t.notMatch(where, /PRIVATE KEY/)
  }
  t.match([rows[0].text, logged()], [lb, /Cannot check certificate references/])
})
