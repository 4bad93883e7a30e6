import t from 'tap'
import { createApplication } from '../../../controller/http/application.js'
import { startServer } from '../../../controller/http/server.js'
import { createAuthenticator } from '../../../controller/identity/authenticate.js'
import type { Caller } from '../../../controller/identity/caller.js'
import { createLog } from '../../../controller/log/log.js'

const domain = { id: 'default', name: 'Default' }
const caller = (name: string, members: Partial<Caller> = {}): Caller => ({
  user: { id: name, name, domain },
  project: null,
  domain: null,
  system: false,
  roles: ['member'],
  expiresAt: new Date(Date.now() + 60_000),
  ...members,
})
const over = new Date(Date.now() - 1_000)
const callers: Readonly<Record<string, Caller>> = {
  alice: caller('alice'),
  ended: caller('ended', { expiresAt: over }),
  bounded: caller('bounded', { accessRules: [{ service: 'mail', method: 'GET', path: '/allowed' }] }),
  service: caller('nova', { roles: ['service'] }),
  endedService: caller('nova', { roles: ['service'], expiresAt: over }),
}

const app = createApplication({
  name: 'mail',
  log: createLog('test', 'silent'),
  presentFault: ({ status, title, message }) => ({ error: { code: status, title, message } }),
})
const asked: { token: string; allowExpired: boolean }[] = []
const callerFor = createAuthenticator({
  validate: async (token, { allowExpired = false } = {}) => {
    asked.push({ token, allowExpired })
    return callers[token] ?? null
  },
  trustedProxies: [],
  identityUrl: 'https://keystone.test/v3',
  serviceType: 'mail',
})
app.use(async ctx => {
  ctx.body = await callerFor(ctx, ctx.path)
})
const server = await startServer(app, { host: '127.0.0.1', port: 0 })
t.teardown(server.stop)

const get = async (path: string, headers: Record<string, string>) => {
  const answer = await fetch(server.url + path, { headers })
  const text = await answer.text()
  return { status: answer.status, headers: answer.headers, body: text.startsWith('{') ? JSON.parse(text) : text }
}

t.test('the token determines the caller', async t => {
  t.match(await get('/x', { 'X-Auth-Token': ' alice ' }), { status: 200, body: { user: { id: 'alice' } } })
  t.match(await get('/x', { 'X-Storage-Token': 'alice' }), { status: 200 }, 'X-Storage-Token works too')
  t.match(await get('/x', { 'X-Auth-Token': 'mallory', 'X-Storage-Token': 'alice' }), { status: 401 })
  const forged = { 'X-User-Id': 'root', 'X-Roles': 'admin', 'X-Identity-Status': 'Confirmed' }
  t.match(await get('/x', forged), { status: 401 }, 'identity headers of a proxy are ignored')
  t.match(await get('/x', { ...forged, 'X-Auth-Token': 'alice' }), {
    body: { user: { id: 'alice' }, roles: ['member'] },
  })
})

t.test('a missing, unknown or expired token is 401 with the address of Keystone', async t => {
  for (const headers of [{}, { 'X-Auth-Token': '' }, { 'X-Auth-Token': 'mallory' }, { 'X-Auth-Token': 'ended' }]) {
    const { status, headers: received, body } = await get('/x', headers as Record<string, string>)
    t.equal(status, 401)
    t.equal(received.get('WWW-Authenticate'), 'Keystone uri="https://keystone.test/v3"')
    t.same(body, {
      error: { code: 401, title: 'Unauthorized', message: 'The request you have made requires authentication.' },
    })
  }
})

t.test('a service token authorizes a service to use its user’s token, even an expired one', async t => {
  const asService = (token: string, path = '/x') => get(path, { 'X-Auth-Token': token, 'X-Service-Token': 'service' })
  t.match(await asService('alice'), { status: 200, body: { user: { id: 'alice' }, service: { id: 'nova' } } })
  t.match(await asService('ended'), { status: 200 }, 'the user’s token may expire during the request')
  t.match(asked.slice(-2), [
    { token: 'service', allowExpired: false },
    { token: 'ended', allowExpired: true },
  ])
  t.match(await asService('mallory'), { status: 401 })
  t.match(await get('/x', { 'X-Service-Token': 'service' }), { status: 401 }, 'a service token alone is not enough')

  for (const token of ['mallory', 'alice', 'endedService']) {
    const reply = await get('/x', { 'X-Auth-Token': 'alice', 'X-Service-Token': token })
    t.equal(reply.status, 401, `${token} is not a valid service token, so the request is refused`)
  }
})

t.test('access rules limit a token’s paths, but not with a service token', async t => {
  t.match(await get('/allowed', { 'X-Auth-Token': 'bounded' }), { status: 200 })
  t.match(await get('/other', { 'X-Auth-Token': 'bounded' }), { status: 401 })
  t.match(
    await get('/other', { 'X-Auth-Token': 'bounded', 'X-Service-Token': 'service' }),
    { status: 200 },
    'a service token lifts the rules',
  )
})
