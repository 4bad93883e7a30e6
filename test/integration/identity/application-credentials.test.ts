import t from 'tap'
import { createApplication } from '../../../controller/http/application.js'
import { startServer } from '../../../controller/http/server.js'
import { createAuthenticator } from '../../../controller/identity/authenticate.js'
import { databaseTokenValidator } from '../../../controller/identity/tokens/validator.js'
import { createLog } from '../../../controller/log/log.js'
import { administratorOf } from '../../support/clients/identity-administrator.js'
import { validatorAt } from '../../support/services/external-identity.js'
import { startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)
const { call, tokenOf, database, projects } = identity
const { token: admin, makeUser, roleId } = await administratorOf(identity)
const validate = databaseTokenValidator(database)

const names = (items: Record<string, unknown>[]) => items.map(item => item.name).sort()
const rescope = (token: string, scope?: unknown) =>
  call('POST /v3/auth/tokens', { body: { auth: { identity: { methods: ['token'], token: { id: token } }, scope } } })

t.test('application credentials', async t => {
  const user = await makeUser('builder')
  const token = await tokenOf('builder', 'demo')
  const path = `/v3/users/${user}/application_credentials`
  const make = (fields: object, bearer = token) =>
    call(`POST ${path}`, { token: bearer, body: { application_credential: fields } })
  const enter = (application_credential: object, scope?: object) =>
    call('POST /v3/auth/tokens', {
      body: { auth: { identity: { methods: ['application_credential'], application_credential }, scope } },
    })

  const made = await make({ name: 'ci', roles: [{ name: 'reader' }], description: 'for tests' })
  t.equal(made.status, 201)
  const id = made.text('application_credential.id')
  const secret = made.text('application_credential.secret')

  await t.test('is shown without its secret', async t => {
    const shown = await call(`GET ${path}/${id}`, { token })
    t.match(shown.body, {
      application_credential: {
        name: 'ci',
        project_id: projects.demo,
        unrestricted: false,
        system: null,
        expires_at: null,
        roles: [{ name: 'reader' }],
      },
    })
    t.notMatch(shown.body, { application_credential: { secret: String } })
    t.equal((await call(`GET ${path}`, { token })).list('application_credentials').length, 1)
    t.equal((await make({ name: 'ci' })).status, 409, 'names are unique')
  })
  await t.test('logs in with its own roles only, and never with a scope', async t => {
    const reply = await enter({ id, secret })
    t.equal(reply.status, 201)
    t.match(reply.body, {
      token: {
        methods: ['application_credential'],
        project: { name: 'demo' },
        application_credential: { id, name: 'ci', restricted: true },
      },
    })
    t.same(names(reply.list('token.roles')), ['reader'])
    const byName = { name: 'ci', user: { name: 'builder', domain: { name: 'Default' } }, secret }
    t.equal((await enter(byName)).status, 201)
    t.equal((await enter({ id, secret: 'wrong' })).status, 401)
    t.equal((await enter({ id, secret }, { project: { id: projects.demo } })).status, 401)
  })
  await t.test('when restricted, can neither create or delete others nor gain roles', async t => {
    const bearer = (await enter({ id, secret })).headers.get('X-Subject-Token')!
    t.equal((await make({ name: 'more' }, bearer)).status, 403)
    t.equal((await call(`DELETE ${path}/${id}`, { token: bearer })).status, 403)
    t.equal((await rescope(bearer, { project: { id: projects.demo } })).status, 401)
    const again = await rescope(bearer)
    t.same(names(again.list('token.roles')), ['reader'])
    await call(`PUT /v3/projects/${projects.demo}/users/${user}/roles/${await roleId('audit')}`, { token: admin })
    t.same((await validate(bearer))!.roles, ['reader'], 'roles that the user gains do not reach it')
  })
  await t.test('roles beyond the token, other users and past expiry are refused', async t => {
    t.equal((await make({ name: 'x', roles: [{ name: 'admin' }] })).status, 400)
    t.equal((await make({ name: 'x', roles: [{ name: 'nonsense' }] })).status, 404)
    t.equal((await make({ name: 'x' }, admin)).status, 403)
    t.equal((await make({ name: 'x', expires_at: '2020-01-01T00:00:00' })).status, 400)
    t.equal((await make({ name: 'x' }, await tokenOf('builder', { unscoped: {} }))).status, 400)
  })
  await t.test('its expiry caps that of its tokens', async t => {
    const end = new Date(Date.now() + 60_000).toISOString()
    const short = await make({ name: 'short', expires_at: end, secret: 'chosen' })
    const reply = await enter({ id: short.text('application_credential.id'), secret: 'chosen' })
    t.equal(Date.parse(reply.text('token.expires_at')), Date.parse(end))
    const both = await call('POST /v3/auth/tokens', {
      body: {
        auth: {
          identity: {
            methods: ['token', 'application_credential'],
            token: { id: token },
            application_credential: { id: short.text('application_credential.id'), secret: 'chosen' },
          },
        },
      },
    })
    t.equal(Date.parse(both.text('token.expires_at')), Date.parse(end), 'even when combined with a longer-lived token')
  })
  await t.test('access rules apply here, and hide the token from services that do not support them', async t => {
    const ruled = await make({
      name: 'ruled',
      secret: 's',
      access_rules: [{ service: 'identity', method: 'GET', path: '/v3/auth/*' }],
    })
    const entered = await enter({ id: ruled.text('application_credential.id'), secret: 's' })
    const bearer = entered.headers.get('X-Subject-Token')!
    const shown = {
      token: { application_credential: { name: 'ruled', restricted: true, access_rules: [{ path: '/v3/auth/*' }] } },
    }
    t.match(entered.body, shown)
    t.equal((await call('GET /v3/auth/projects', { token: bearer })).status, 200)
    t.equal((await call(`GET /v3/users/${user}`, { token: bearer })).status, 401)
    const subject = { 'X-Subject-Token': bearer }
    t.equal((await call('GET /v3/auth/tokens', { token: admin, headers: subject })).status, 404)
    const knowing = { ...subject, 'OpenStack-Identity-Access-Rules': '1' }
    for (const query of ['', '?nocatalog']) {
      const { status, body } = await call(`GET /v3/auth/tokens${query}`, { token: admin, headers: knowing })
      t.match({ status, body }, { status: 200, body: shown }, query)
      t.notOk(Object.hasOwn((body as { token: object }).token, 'access_rules'), 'not at the top level')
    }
    t.match(await validate(bearer), { accessRules: [{ service: 'identity' }] })
  })
  await t.test('deleting it ends its tokens; it loses the roles that its user loses', async t => {
    const bearer = (await enter({ id, secret })).headers.get('X-Subject-Token')!
    t.equal((await call(`DELETE ${path}/${id}`, { token })).status, 204)
    t.equal(await validate(bearer), null)
    const left = await make({ name: 'left', secret: 'left', roles: [{ name: 'member' }] })
    await call(`DELETE /v3/projects/${projects.demo}/users/${user}/roles/${await roleId('member')}`, { token: admin })
    t.equal((await enter({ id: left.text('application_credential.id'), secret: 'left' })).status, 401)
  })
})

t.test('another service accepts a valid token within its access rules', async t => {
  const user = await makeUser('bound')
  const body = {
    application_credential: {
      name: 'reads',
      secret: 's',
      access_rules: [{ service: 'load-balancer', method: 'GET', path: '/v2/lbaas/**' }],
    },
  }
  const made = await call(`POST /v3/users/${user}/application_credentials`, {
    token: await tokenOf('bound', 'demo'),
    body,
  })
  const application_credential = { id: made.text('application_credential.id'), secret: 's' }
  const entered = await call('POST /v3/auth/tokens', {
    body: { auth: { identity: { methods: ['application_credential'], application_credential } } },
  })
  const bound = entered.headers.get('X-Subject-Token')!
  const identityUrl = 'http://id/v3'
  const serve = async (serviceType?: string) => {
    const presentFault = ({ status }: { status: number }) => ({ status })
    const app = createApplication({ name: 'other', log: createLog('other', 'fatal'), presentFault })
    const callerFor = createAuthenticator({
      validate,
      trustedProxies: [],
      identityUrl,
      ...(serviceType !== undefined && { serviceType }),
    })
    app.use(async ctx => {
      ctx.body = (await callerFor(ctx, ctx.path)).user.name
    })
    const server = await startServer(app, { host: '127.0.0.1', port: 0 })
    t.teardown(server.stop)
    return async (path: string, token = '', method = 'GET') => {
      const reply = await fetch(`${server.url}${path}`, { method, headers: { 'X-Auth-Token': token } })
      return reply.ok ? reply.text() : `${reply.status} ${reply.headers.get('WWW-Authenticate')}`
    }
  }
  const elsewhere = validatorAt(`${identity.url}/v3`, {
    credentials: {
      ...{ method: 'password', username: 'admin', password: 'admin-pw', userDomainName: 'Default' },
      ...{ projectName: 'admin', projectDomainName: 'Default' },
    },
  })
  t.teardown(elsewhere.close)
  const rules = (await elsewhere.validate(bound))?.accessRules
  t.match(rules, [{ service: 'load-balancer', path: '/v2/lbaas/**' }], 'an external installation reads them too')
  const refused = `401 Keystone uri="${identityUrl}"`
  const balancer = await serve('load-balancer')
  t.equal(await balancer('/v2/lbaas'), refused)
  t.equal(await balancer('/v2/lbaas', 'nonsense'), refused)
  t.equal(await balancer('/v2/lbaas', ` ${await tokenOf('demo', 'demo')} `), 'demo')
  t.equal(await balancer('/v2/lbaas/pools/1', bound), 'bound')
  t.equal(await balancer('/v2/lbaas/pools/1', bound, 'POST'), refused)
  t.equal(await balancer('/v2/other', bound), refused)
  t.equal(await (await serve('network'))('/v2/lbaas/pools', bound), refused, 'the service has another type')
  t.equal(await (await serve())('/v2/lbaas/pools', bound), refused, 'the service has no type')
})
