import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { hashMebibytes, hashPassword, saltOf, verifyPassword } from '../../../controller/identity/login/passwords.js'
import { databaseTokenValidator } from '../../../controller/identity/tokens/validator.js'
import { administratorOf } from '../../support/clients/identity-administrator.js'
import { recordLog } from '../../support/recorded-log.js'
import { type CallOptions, passwordLogin, type Reply, startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity({ settings: { lockout_failure_attempts: 1000 } })
t.teardown(identity.stop)
const { call, login, tokenOf, database, projects } = identity
const { token: admin, makeUser, roleId } = await administratorOf(identity)
const validate = databaseTokenValidator(database)

const names = (items: Record<string, unknown>[]) => items.map(item => item.name).sort()
const rescope = (token: string, scope?: unknown) =>
  call('POST /v3/auth/tokens', { body: { auth: { identity: { methods: ['token'], token: { id: token } }, scope } } })

t.test('discovery documents point to the address that the client used', async t => {
  const root = await call('GET /')
  t.equal(root.status, 300)
  t.equal(root.headers.get('Location'), `${identity.url}/v3/`)
  t.match(root.list('versions.values')[0], {
    id: 'v3.14',
    status: 'stable',
    links: [{ rel: 'self', href: `${identity.url}/v3/` }],
  })
  for (const path of ['/v3', '/v3/', '/identity/v3']) {
    const version = await call(`GET ${path}`)
    t.equal(version.status, 200, path)
    const prefix = path.startsWith('/identity') ? '/identity' : ''
    t.match(version.body, { version: { id: 'v3.14', links: [{ href: `${identity.url}${prefix}/v3/` }] } })
  }
})

t.test('a login scoped to a project answers 201 with the whole token document', async t => {
  const reply = await login('admin', 'admin')
  t.equal(reply.status, 201)
  t.equal(reply.headers.get('Vary'), 'X-Auth-Token')
  t.match(reply.headers.get('x-openstack-request-id'), /^req-[0-9a-f-]{36}$/)
  const token = reply.headers.get('X-Subject-Token')!
  t.match(token, /^[\w-]{43}$/)
  t.match(reply.body, {
    token: {
      methods: ['password'],
      user: { name: 'admin', domain: { id: 'default', name: 'Default' }, password_expires_at: null },
      project: { id: projects.admin, name: 'admin', domain: { id: 'default', name: 'Default' } },
      is_domain: false,
      issued_at: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/,
      expires_at: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/,
    },
  })
  t.match(reply.list('token.audit_ids')[0], /^[\w-]{22}$/)
  t.same(names(reply.list('token.roles')), ['admin', 'manager', 'member', 'reader'])
  const lifetime = Date.parse(reply.text('token.expires_at')) - Date.parse(reply.text('token.issued_at'))
  t.equal(lifetime, 3_600_000)
})

t.test('every failed login is the same neutral 401', async t => {
  await makeUser('sleeper', { enabled: false })
  const reference = await login('demo', 'demo', 'wrong')
  t.equal(reference.status, 401)
  t.equal(reference.headers.get('WWW-Authenticate'), `Keystone uri="${identity.url}/v3"`)
  t.same(reference.body, {
    error: { code: 401, message: 'The request you have made requires authentication.', title: 'Unauthorized' },
  })
  const others = {
    'unknown user': await login('nobody', 'demo'),
    'disabled user': await login('sleeper', 'demo'),
    'unknown project': await login('demo', 'nowhere'),
    'project without a role': await login('demo', 'admin'),
    'system without a role': await login('demo', { system: { all: true } }),
    'domain without a role': await login('demo', { domain: { id: 'default' } }),
    'unknown token': await rescope('x'.repeat(43)),
    'unknown application credential': await call('POST /v3/auth/tokens', {
      body: {
        auth: { identity: { methods: ['application_credential'], application_credential: { id: 'x', secret: 'y' } } },
      },
    }),
  }
  for (const [what, reply] of Object.entries(others)) {
    t.equal(reply.status, 401, what)
    t.same(reply.body, reference.body, what)
  }
})

t.test('an unknown user takes as long as a wrong password', async t => {
  // CPU time, which does not grow on a busy machine.
  const cost = async (name: string) => {
    const before = process.cpuUsage()
    for (let i = 0; i < 3; i++) await login(name, 'demo', 'wrong')
    return process.cpuUsage(before).user
  }
  await cost('nobody')
  const unknown = await cost('nobody')
  const known = await cost('demo')
  t.ok(unknown > known / 3, `unknown ${unknown} µs, known ${known} µs`)
})

t.test('malformed logins are 400', async t => {
  const user = { name: 'demo', password: 'demo-pw' }
  const bodies: Record<string, unknown> = {
    'no auth': {},
    'no identity': { auth: {} },
    'no section for the method': { auth: { identity: { methods: ['password'] } } },
    'unknown method': { auth: { identity: { methods: ['saml2'] } } },
    'name without domain': { auth: { identity: { methods: ['password'], password: { user } } } },
    'two scopes': passwordLogin('demo', 'demo-pw', { project: { id: 'x' }, system: { all: true } }),
    'not JSON': '{',
    'a NUL in a name': passwordLogin('de\0mo', 'x'),
    'a lone surrogate': '{"auth": {"identity": {"methods": ["\\ud800"]}}}',
    'deep nesting': `{"auth": ${'['.repeat(5000)}${']'.repeat(5000)}}`,
  }
  for (const [what, body] of Object.entries(bodies)) {
    const reply = await call('POST /v3/auth/tokens', { body })
    t.equal(reply.status, 400, what)
    t.match(reply.body, { error: { code: 400, title: 'Bad Request', message: String } }, what)
  }
  const form = await call('POST /v3/auth/tokens', {
    body: 'a=b',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
  })
  t.equal(form.status, 400, 'an unsupported media type')
  t.equal((await call('POST /v3/auth/tokens', { body: 'x'.repeat(200_000) })).status, 413, 'a huge body')
})

t.test('login scopes', async t => {
  await t.test('user and project may be given by id', async t => {
    const { text } = await login('demo', 'demo')
    const body = {
      auth: {
        identity: { methods: ['password'], password: { user: { id: text('token.user.id'), password: 'demo-pw' } } },
        scope: { project: { id: projects.demo } },
      },
    }
    t.equal((await call('POST /v3/auth/tokens', { body })).text('token.project.name'), 'demo')
  })
  await t.test('an unscoped token has no project, roles or catalogue', async t => {
    for (const reply of [
      await login('admin'),
      await login('demo', { unscoped: {} }),
      await call('POST /v3/auth/tokens', {
        body: { auth: { ...passwordLogin('demo', 'demo-pw').auth, scope: 'unscoped' } },
      }),
    ]) {
      t.equal(reply.status, 201)
      const { token } = reply.body as { token: object }
      for (const member of ['project', 'roles', 'catalog', 'domain', 'system']) t.notOk(member in token, member)
    }
  })
  await t.test('without a scope, the default project applies if the user has a role there', async t => {
    t.equal((await login('demo')).text('token.project.id'), projects.demo)
    await call('POST /v3/users', {
      token: admin,
      body: { user: { name: 'homeless', password: 'homeless-pw', default_project_id: projects.admin } },
    })
    const reply = await login('homeless')
    t.equal(reply.status, 201)
    t.notMatch(reply.body, { token: { project: {} } })
  })
  await t.test('a system token carries the system roles', async t => {
    const reply = await login('admin', { system: { all: true } })
    t.match(reply.body, { token: { system: { all: true } } })
    t.same(names(reply.list('token.roles')), ['admin', 'manager', 'member', 'reader'])
    t.ok(reply.list('token.catalog').length > 0)
  })
  await t.test('a domain token carries roles from a group until the user leaves it', async t => {
    const user = await makeUser('grouped', { grant: false })
    const group = (await call('POST /v3/groups', { token: admin, body: { group: { name: 'crew' } } })).text('group.id')
    await call(`PUT /v3/groups/${group}/users/${user}`, { token: admin })
    await call(`PUT /v3/domains/default/groups/${group}/roles/${await roleId('manager')}`, { token: admin })
    const reply = await login('grouped', { domain: { name: 'Default' } })
    t.match(reply.body, { token: { domain: { id: 'default', name: 'Default' } } })
    t.same(names(reply.list('token.roles')), ['manager', 'member', 'reader'])
    const token = reply.headers.get('X-Subject-Token')!
    t.match(await validate(token), { domain: { id: 'default' }, project: null, system: false })
    await call(`DELETE /v3/groups/${group}/users/${user}`, { token: admin })
    t.equal(await validate(token), null, 'leaving the group ends the token')
  })
})

t.test('changing one’s own password ends the tokens and the old password', async t => {
  const user = await makeUser('changer')
  const token = await tokenOf('changer', 'demo')
  const change = (original_password: string, options: CallOptions = {}) =>
    call(`POST /v3/users/${user}/password`, { ...options, body: { user: { original_password, password: 'fresh' } } })
  t.equal((await change('wrong')).status, 401)
  t.equal((await change('wrong', { token })).status, 401, 'no token replaces the original password')
  t.equal((await change('wrong', { token: admin })).status, 401)
  t.equal((await change('changer-pw')).status, 204)
  t.equal(await validate(token), null)
  t.equal((await login('changer', 'demo')).status, 401)
  t.equal((await login('changer', 'demo', 'fresh')).status, 201)
})

t.test('a login runs at most nine queries', async t => {
  await login('demo', 'demo')
  const queries: string[] = []
  const note = ({ sql }: { sql: string }) => queries.push(sql)
  database.on('query', note)
  await login('demo', 'demo')
  database.removeListener('query', note)
  t.ok(queries.length <= 9, queries.join('\n'))
})

t.test('floods of failed logins', async t => {
  const recorded = recordLog()
  const { call, login, database, stop } = await startIdentity({ log: recorded.log })
  t.teardown(stop)
  await login('demo', 'demo')
  const flood = (name: (n: number) => string) => {
    const answers: Reply[] = []
    const all = Array.from({ length: 150 }, async (_, n) => {
      answers.push(await login(name(n), 'demo', 'wrong'))
    })
    return { answers, end: Promise.all(all) }
  }
  const warnings = () => recorded.lines.filter(({ level }) => level >= 40).map(({ msg, err }) => [msg, err])

  await t.test('one account pauses after a few failures and logs a warning; others log in', async t => {
    const { answers, end } = flood(() => 'admin')
    t.equal((await login('demo', 'demo')).status, 201, 'another account logs in')
    await end
    const guesses = answers.filter(({ status }) => status === 401).length
    t.ok(guesses >= 5 && guesses < 10, `${guesses} guesses`)
    const refused = answers.filter(({ status }) => status === 429)
    t.equal(guesses + refused.length, 150)
    t.match(refused[0]?.headers.get('Retry-After'), /^[1-9]\d?$/)
    t.match(refused[0]?.body, { error: { code: 429, title: 'Too Many Requests' } })
    const lines = warnings()
    t.ok(lines.some(([msg]) => /^Failed logins of source 127\.0\.0\.1: Too many logins have failed/.test(String(msg))))
    t.ok(lines.length <= 2, 'one more if the queue was full as well')
    for (const [msg, err] of lines) t.equal(err, undefined, String(msg))
  })

  await t.test('failures on many accounts do not keep others from logging in', async t => {
    recorded.lines.length = 0
    const { answers, end } = flood(n => `nobody${n}`)
    await recorded.line('request', ({ status }) => status === 401)
    const before = answers.length
    t.equal((await login('demo', 'demo')).status, 201)
    t.ok(answers.filter(({ status }) => status === 401).length - before < 20, 'ahead of most of the flood')
    await end
    t.same(new Set(answers.map(({ status }) => status)), new Set([401, 429]))
  })

  await t.test('changing a password is no way around the pause', async t => {
    const id = (await login('demo', 'demo')).text('token.user.id')
    const change = (user: string, original_password: string) =>
      call(`POST /v3/users/${user}/password`, { body: { user: { original_password, password: 'fresh' } } })
    const user = { id, password: 'demo-pw' }
    const byId = { auth: { identity: { methods: ['password'], password: { user } } } }
    for (let n = 0; n < 5; n++) t.equal((await change(id, 'wrong')).status, 401)
    const others = [change(id, 'wrong'), change(id, 'demo-pw'), call('POST /v3/auth/tokens', { body: byId })]
    const statuses = (await Promise.all(others)).map(({ status }) => status)
    t.same(statuses, [429, 429, 429], 'even with the right password, and for a login that names the user by its ID')
    for (let n = 0; n < 5; n++) t.equal((await change('nobody', 'wrong')).status, 401)
    t.equal((await change('nobody', 'wrong')).status, 429, 'an unknown user looks the same')
  })

  await t.test('a hash of a lower cost is upgraded at login without ending tokens', async t => {
    const cheap = await hashPassword('barbican-pw', 12)
    await database('local_user').where({ name: 'barbican' }).update({ password_hash: cheap })
    const logins = await Promise.all(Array.from({ length: 3 }, () => login('barbican', 'service')))
    t.same(
      logins.map(({ status }) => status),
      [201, 201, 201],
    )
    const { password_hash } = await database('local_user').where({ name: 'barbican' }).first('password_hash')
    t.match(password_hash, /^scrypt\$16384\$/)
    const token = logins[0]!.headers.get('X-Subject-Token')!
    t.equal((await call('GET /v3/auth/tokens', { token, headers: { 'X-Subject-Token': token } })).status, 200)
    t.equal((await login('barbican', 'service')).status, 201)
  })
})

t.test('verifying upgrades a cheap hash in place, only for the right password', async t => {
  const { password_hash_rounds: rounds } = configurationSchema.parse({}).identity
  t.equal(hashMebibytes(rounds), 128, 'N = 2^17, r = 8, as OWASP advises')
  const old = await hashPassword('gehe!m', 14)
  const { matches, upgraded } = await verifyPassword('gehe!m', old, rounds)
  t.equal(matches, true)
  t.match(upgraded, /^scrypt\$131072\$8\$1\$/)
  t.equal(saltOf(upgraded), saltOf(old))
  t.same(await verifyPassword('gehe!m', upgraded, rounds), { matches: true, upgraded: null })
  t.same(await verifyPassword('wrong', old, 15), { matches: false, upgraded: null }, 'only with the right password')
})
