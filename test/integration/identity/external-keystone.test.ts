import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { idIn } from '../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'
import { testDirectory } from '../../support/database/database.js'
import { ownPorts } from '../../support/ports.js'
import { validatorAt } from '../../support/services/external-identity.js'
import { startKeystone } from '../../support/services/keystone.js'
import { createKrater, NOOP_DRIVERS, until } from '../../support/worlds/krater.js'

const run = promisify(execFile)

/** Seconds within which a revocation must take effect. */
const BOUND = 2

const keystone = await startKeystone()
t.teardown(keystone.end)

/** Calls Keystone as its administrator. */
const administrator = async () => {
  const token = await keystone.tokenOf('admin', 'admin')
  const as = async (operation: string, body?: unknown) => {
    const reply = await keystone.call(operation, { token, body })
    if (reply.status >= 300) throw new Error(`${operation}: ${reply.status} ${JSON.stringify(reply.body)}`)
    return reply
  }
  const idOf = async (plural: string, name: string) =>
    String((await as(`GET /v3/${plural}?name=${name}`)).list(plural)[0]?.id)
  return {
    as,
    idOf,
    make: async (plural: string, singular: string, body: object) =>
      (await as(`POST /v3/${plural}`, { [singular]: body })).text(`${singular}.id`),
    grant: async (user: string, project: string, role: string) =>
      as(
        `PUT /v3/projects/${await idOf('projects', project)}/users/${await idOf('users', user)}/roles/${await idOf('roles', role)}`,
      ),
  }
}

const admin = await administrator()
await admin.make('roles', 'role', { name: 'service' })
await admin.make('regions', 'region', { id: 'RegionOne' })
const work = await admin.make('projects', 'project', { name: 'work', domain_id: 'default' })
for (const name of ['service', 'other']) await admin.make('projects', 'project', { name, domain_id: 'default' })
for (const [user, project, role] of [
  ['krater', 'service', 'service'],
  ['alice', 'work', 'member'],
  ['bob', 'work', 'reader'],
  ['eve', 'other', 'member'],
  ['plain', 'service', 'member'],
] as const) {
  await admin.make('users', 'user', { name: user, domain_id: 'default', password: `${user}-pw` })
  await admin.grant(user, project, role)
}
for (const type of ['load-balancer', 'key-manager']) await admin.make('services', 'service', { type, name: type })

const { validate, signIn, close } = validatorAt(keystone.url, { tokenCacheSeconds: BOUND })
t.teardown(close)
const balancers = await startTestApi({ validate })
t.teardown(balancers.stop)
const secrets = await startTestKeyManager({}, validate)
t.teardown(secrets.stop)

const LIST = '/v2/lbaas/loadbalancers'
const statusOf = async (token: string | null, path = LIST, headers: Record<string, string> = {}) =>
  (await balancers.ask('GET', path, undefined, token, headers)).status
/** The status of a request to the key manager. */
const secretsOf = async (token: string) => (await secrets.ask('GET', '/v1/secrets', undefined, { token })).status

t.test('Keystone tokens work in both services', async t => {
  await signIn()
  const alice = await keystone.tokenOf('alice', 'work')

  await t.test('a member creates a load balancer and a secret that other projects cannot see', async t => {
    const made = await balancers.ask('POST', LIST, { loadbalancer: { name: 'web', vip_subnet_id: SUBNET } }, alice)
    t.match(made, { status: 201, body: { loadbalancer: { name: 'web', project_id: work } } })
    await secrets.store(undefined, alice)
    t.equal(await secretsOf(alice), 200)
    const eve = await keystone.tokenOf('eve', 'other')
    t.equal(await statusOf(eve, `${LIST}/${idIn(made, 'loadbalancer')}`), 403, 'another project may not read it')
    t.match(await balancers.ask('GET', LIST, undefined, eve), { body: { loadbalancers: [] } })
    t.match(await secrets.ask('GET', '/v1/secrets', undefined, { token: eve }), { body: { total: 0 } })
  })

  await t.test('a reader may read but not create', async t => {
    const bob = await keystone.tokenOf('bob', 'work')
    t.equal(await statusOf(bob), 200)
    const made = await balancers.ask('POST', LIST, { loadbalancer: { vip_subnet_id: SUBNET } }, bob)
    t.equal(made.status, 403)
  })

  await t.test('a missing or unknown token is 401', async t => {
    for (const token of [null, 'gAAAAABnobody', `${alice}x`]) {
      const { status, headers, body } = await balancers.ask('GET', LIST, undefined, token)
      t.equal(status, 401)
      t.equal(headers.get('WWW-Authenticate'), 'Keystone uri="http://identity.test/v3"')
      t.match(body, { error: { code: 401, title: 'Unauthorized' } })
    }
    t.equal(await secretsOf('gAAAAABnobody'), 401)
  })

  await t.test('a token carries its scope; without a project it gets 403', async t => {
    const unscoped = await keystone.tokenOf('alice')
    t.match(await validate(unscoped), {
      user: { name: 'alice' },
      project: null,
      domain: null,
      system: false,
      roles: [],
    })
    t.equal(await statusOf(unscoped), 403)
    t.equal(await secretsOf(unscoped), 403)
    const system = await keystone.tokenOf('admin', { system: { all: true } })
    t.match(await validate(system), { project: null, system: true, roles: ['member', 'reader', 'admin'].sort() })
    await admin.as(
      `PUT /v3/domains/default/users/${await admin.idOf('users', 'alice')}/roles/${await admin.idOf('roles', 'reader')}`,
    )
    const domain = await keystone.tokenOf('alice', { domain: { id: 'default' } })
    t.match(await validate(domain), { project: null, domain: { id: 'default', name: 'Default' }, roles: ['reader'] })
  })
})

t.test('application credentials', async t => {
  const make = async (user: string, project: string, body: object) => {
    const token = await keystone.tokenOf(user, project)
    const path = `/v3/users/${await admin.idOf('users', user)}/application_credentials`
    const reply = await keystone.call(`POST ${path}`, { token, body: { application_credential: body } })
    return {
      id: reply.text('application_credential.id'),
      secret: reply.text('application_credential.secret'),
    }
  }
  const signInWith = (credential: object) =>
    keystone.tokenFor({
      auth: { identity: { methods: ['application_credential'], application_credential: credential } },
    })

  await t.test('access rules limit a token to their service, method and path', async t => {
    const rule = { service: 'load-balancer', method: 'GET', path: '/v2/lbaas/*' }
    const other = { service: 'not-in-the-catalogue', method: 'GET', path: '/**' }
    const token = await signInWith(await make('alice', 'work', { name: 'bounded', access_rules: [rule, other] }))
    t.equal(await statusOf(token), 200)
    t.equal(await statusOf(token, `${LIST}/${SUBNET}`), 401, 'a path that no rule matches')
    const made = await balancers.ask('POST', LIST, { loadbalancer: { vip_subnet_id: SUBNET } }, token)
    t.equal(made.status, 401, 'a method that no rule matches')
    t.equal(await secretsOf(token), 401, 'a service that no rule names')
    t.match(await validate(token), { accessRules: [rule] })
    const service = await keystone.tokenOf('krater', 'service')
    t.equal(
      await statusOf(token, `${LIST}/${SUBNET}`, { 'X-Service-Token': service }),
      404,
      'a service token lifts the rules',
    )
  })

  await t.test('a credential without rules may do what its user may', async t => {
    const token = await signInWith(await make('alice', 'work', { name: 'whole' }))
    t.equal(await statusOf(token), 200)
    t.equal(await secretsOf(token), 200)
  })

  await t.test('its expiry ends its tokens', async t => {
    const end = new Date(Date.now() + 3_000).toISOString().replace('Z', '')
    const token = await signInWith(await make('alice', 'work', { name: 'short', expires_at: end }))
    t.equal(await statusOf(token), 200)
    await until('the token has expired', async () => (await statusOf(token)) === 401)
    t.ok(Date.now() >= Date.parse(`${end}Z`) - 1_000)
  })

  await t.test('our service user may use an application credential', async t => {
    const credential = await make('krater', 'service', { name: 'krater' })
    const credentials = { method: 'application_credential' as const, ...credential }
    const validator = validatorAt(keystone.url, { credentials })
    t.teardown(validator.close)
    t.match(await validator.validate(await keystone.tokenOf('alice', 'work')), { user: { name: 'alice' } })
    const wrong = validatorAt(keystone.url, { credentials: { ...credentials, secret: 'wrong' } })
    t.teardown(wrong.close)
    await t.rejects(wrong.signIn(), /does not accept the application credential [0-9a-f]{32}/)
  })
})

t.test('a wrong, unauthorized or misconfigured service user yields an error or 503', async t => {
  const as = (username: string, password = `${username}-pw`) => {
    const credentials = { username, password, userDomainName: 'Default', projectName: 'service' }
    const validator = validatorAt(keystone.url, {
      credentials: { method: 'password', projectDomainName: 'Default', ...credentials },
    })
    t.teardown(validator.close)
    return validator
  }
  await t.rejects(as('krater', 'wrong').signIn(), /does not accept the user krater/)
  await t.rejects(as('nobody').signIn(), /does not accept the user nobody/)
  const alice = await keystone.tokenOf('alice', 'work')
  t.match(
    await as('plain')
      .validate(alice)
      .catch((error: unknown) => error),
    { status: 503 },
    'a user that may not validate tokens',
  )
  t.match(
    await as('admin')
      .validate(alice)
      .catch((error: unknown) => error),
    { status: 503 },
    'a user without a role in the project',
  )
})

t.test('a revoked token is refused within the bound', async t => {
  const token = await keystone.tokenOf('alice', 'work')
  t.equal(await statusOf(token), 200)
  const revoked = await keystone.call('DELETE /v3/auth/tokens', { token, headers: { 'X-Subject-Token': token } })
  t.equal(revoked.status, 204)
  const at = performance.now()
  await until('the token is refused', async () => (await statusOf(token)) === 401)
  const seconds = (performance.now() - at) / 1000
  t.ok(seconds < BOUND + 0.5, `it took effect after ${seconds.toFixed(2)} s`)
  t.equal(await secretsOf(token), 401)
})

t.test('while Keystone is down, cached tokens work and others get 503', async t => {
  const lasting = validatorAt(keystone.url)
  t.teardown(lasting.close)
  const [cached, fresh] = [await keystone.tokenOf('alice', 'work'), await keystone.tokenOf('bob', 'work')]
  t.ok(await lasting.validate(cached))
  await keystone.stop()
  t.match(await lasting.validate(cached), { user: { name: 'alice' } }, 'cached tokens stay valid')
  for (const token of [fresh, 'gAAAAABnobody-2']) {
    const { status, headers, text } = await balancers.ask('GET', LIST, undefined, token)
    t.equal(status, 503)
    t.equal(headers.get('WWW-Authenticate'), null)
    t.match(text, 'Identity temporarily unavailable.')
    t.equal(await secretsOf(token), 503)
  }
  // From now on all tokens live for two seconds, ours included.
  await keystone.start({ 'token.expiration': 2 })
  await until('tokens are validated', async () => (await statusOf(fresh)) === 200)
})

t.test('an expired token works only with a service token, and our own token is renewed in time', async t => {
  const short = await keystone.tokenOf('alice', 'work')
  t.equal(await statusOf(short), 200)
  await until('the token has expired', async () => (await statusOf(short)) === 401)
  const service = await keystone.tokenOf('krater', 'service')
  t.equal(await statusOf(short, LIST, { 'X-Service-Token': service }), 200, 'a service may still use it')
  const eve = await keystone.tokenOf('eve', 'other')
  t.equal(await statusOf(short, LIST, { 'X-Service-Token': eve }), 401, 'no other token helps')
  await until('the service token has expired', async () => {
    return (await statusOf(short, LIST, { 'X-Service-Token': service })) === 401
  })
  const renewed = validatorAt(keystone.url)
  t.teardown(renewed.close)
  const started = performance.now()
  while (performance.now() - started < 2_500) {
    t.ok(await renewed.validate(await keystone.tokenOf('alice', 'work')), 'our own token is renewed in time')
  }
  await keystone.stop()
  await keystone.start()
})

t.test('after all tokens are invalidated, we log in again', async t => {
  const before = await keystone.tokenOf('alice', 'work')
  t.equal(await statusOf(before), 200)
  await keystone.replaceKeys()
  t.equal(await statusOf(await keystone.tokenOf('alice', 'work')), 200, 'we log in again')
  await until('the former token is refused', async () => (await statusOf(before)) === 401)
})

t.test('Krater beside an external Keystone', async t => {
  const [spare = 0] = await ownPorts(1)
  const krater = await createKrater(t, {
    ...NOOP_DRIVERS,
    KRATER_IDENTITY_EXTERNAL_URL: keystone.url,
    KRATER_IDENTITY_USERNAME: 'krater',
    KRATER_IDENTITY_PASSWORD: 'krater-pw',
    KRATER_IDENTITY_PORT: String(spare),
  })
  const { as, idOf, make } = await administrator()
  const users = async () => (await as('GET /v3/users')).list('users').map(({ name }) => name)
  const usersBefore = await users()

  await t.test('does not start with a wrong password', async t => {
    krater.environment.KRATER_IDENTITY_PASSWORD = 'wrong-one'
    for (const command of ['up', 'api']) {
      const { status, stderr } = await krater.command(command)
      t.equal(status, 1)
      t.match(stderr, 'Keystone does not accept the user krater of the domain Default on the project service')
      t.match(stderr, 'identity.password')
      t.notMatch(stderr, /wrong-one|at .*\.js:/)
    }
    krater.environment.KRATER_IDENTITY_PASSWORD = 'krater-pw'
  })

  const port = krater.environment.KRATER_LOAD_BALANCER_PORT
  const ask = (method: string, token: string, body?: object) =>
    fetch(`http://127.0.0.1:${port}${LIST}`, {
      method,
      headers: { 'X-Auth-Token': token, 'Content-Type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    })
  await t.test('up prints the missing catalogue entries and writes nothing to Keystone', async t => {
    const { status, stdout, stderr } = await krater.command('up', '--detach')
    t.equal(status, 0, stderr)
    t.match(stdout, `identity       ${keystone.url} (identity.external_url`)
    for (const face of ['public', 'internal', 'admin']) {
      t.match(stdout, `openstack endpoint create --region RegionOne load-balancer ${face} http://127.0.0.1:${port}`)
    }
    t.match(stdout, 'openstack service create --name neutron network')
    t.notMatch(stdout, /client files|service create --name octavia/)
    for (const name of ['openrc', 'admin-openrc', 'clouds.yaml', 'keys/passwords.json']) {
      t.notOk(existsSync(join(krater.directory, name)), name)
    }
    t.same(await users(), usersBefore)
    t.same((await as('GET /v3/endpoints')).list('endpoints'), [])
    await t.rejects(fetch(`http://127.0.0.1:${spare}/`), 'no identity API is served')
  })

  await t.test('the other commands take the external Keystone into account', async t => {
    t.match(await krater.command('api', '--only', 'identity'), {
      status: 1,
      stderr: `There is no identity API to serve: identity.external_url points to ${keystone.url}.`,
    })
    t.match(await krater.command('demo'), { status: 1, stderr: `identity.external_url is ${keystone.url}` })
    const { stdout } = await krater.command('doctor')
    t.match(stdout, /keystone\s+ok\s+\S+ accepts the user krater/)
    t.match(stdout, /keystone\s+ok\s+its clock differs by \d s/)
    t.match(stdout, /keystone\s+note\s+its catalogue does not point clients here/)
    t.notMatch(stdout, 'identity API')
  })

  await t.test('the openstack command finds Krater through Keystone’s catalogue', async t => {
    const service_id = await idOf('services', 'load-balancer')
    for (const face of ['public', 'internal', 'admin']) {
      const url = `http://127.0.0.1:${port}`
      await make('endpoints', 'endpoint', { service_id, interface: face, region_id: 'RegionOne', url })
    }
    const openstack = async (...args: string[]): Promise<unknown> => {
      const { stdout } = await run('openstack', [...args, '-f', 'json'], {
        env: {
          PATH: process.env.PATH,
          HOME: testDirectory(),
          PYTHONWARNINGS: 'ignore',
          OS_AUTH_URL: keystone.url,
          OS_IDENTITY_API_VERSION: '3',
          OS_USERNAME: 'alice',
          OS_PASSWORD: 'alice-pw',
          OS_PROJECT_NAME: 'work',
          OS_USER_DOMAIN_NAME: 'Default',
          OS_PROJECT_DOMAIN_NAME: 'Default',
          OS_REGION_NAME: 'RegionOne',
        },
        timeout: 60_000,
      })
      return JSON.parse(stdout)
    }
    const made = await ask('POST', await keystone.tokenOf('alice', 'work'), {
      loadbalancer: { name: 'web', vip_subnet_id: SUBNET },
    })
    t.equal(made.status, 201)
    t.match(await openstack('loadbalancer', 'list'), [{ name: 'web', project_id: work }])
  })

  await t.test('the API starts without Keystone and validates tokens once it is up', async t => {
    await keystone.stop()
    krater.kill('load-balancer-api')
    const status = (token: string) =>
      ask('GET', token).then(
        reply => reply.status,
        () => 0,
      )
    await until('the API answers again', async () => (await status('gAAAAABx')) === 503)
    await keystone.start()
    const alice = await keystone.tokenOf('alice', 'work')
    await until('tokens are validated', async () => (await status(alice)) === 200)
    t.same(
      krater.running().filter(name => /api$/.test(name)),
      ['key-manager-api', 'load-balancer-api', 'network-api'],
    )
  })
})
