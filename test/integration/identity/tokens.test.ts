import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { lockRights } from '../../../controller/identity/tokens/revocation.js'
import { purgeExpiredTokens, tokenHash } from '../../../controller/identity/tokens/store.js'
import { databaseTokenValidator } from '../../../controller/identity/tokens/validator.js'
import { administratorOf } from '../../support/clients/identity-administrator.js'
import { recordLog } from '../../support/recorded-log.js'
import { startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)
const { call, login, tokenOf, database, projects } = identity
const { token: admin, makeUser, roleId } = await administratorOf(identity)
const validate = databaseTokenValidator(database)

const rescope = (token: string, scope?: unknown) =>
  call('POST /v3/auth/tokens', { body: { auth: { identity: { methods: ['token'], token: { id: token } }, scope } } })

/** Waits up to two seconds for a condition. If the code is broken and never meets it, the test fails afterwards. */
async function until(condition: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 100 && !(await condition()); tries++) await setTimeout(20)
}

t.test('rescoping keeps the expiry, adds the method and chains the audit ids', async t => {
  const first = await login('demo', 'demo')
  const token = first.headers.get('X-Subject-Token')!
  const second = await rescope(token, { project: { id: projects.demo } })
  t.equal(second.status, 201)
  t.same(second.list('token.methods'), ['password', 'token'])
  t.equal(second.text('token.expires_at'), first.text('token.expires_at'))
  t.equal(second.list('token.audit_ids').length, 2)
  t.equal(second.list('token.audit_ids')[1], first.list('token.audit_ids')[0])
  await call('DELETE /v3/auth/tokens', { token, headers: { 'X-Subject-Token': token } })
  t.ok(await validate(second.headers.get('X-Subject-Token')!), 'the new token is valid after its parent is revoked')
})

t.test('administrators, services and the owner may validate and revoke a token', async t => {
  const own = await tokenOf('demo', 'demo')
  const service = await tokenOf('octavia', 'service')
  const other = await makeUser('other').then(() => tokenOf('other', 'demo'))
  const look = (token: string, subject: string, path = '/v3/auth/tokens', method = 'GET') =>
    call(`${method} ${path}`, { token, headers: { 'X-Subject-Token': subject } })

  for (const [who, token] of Object.entries({ admin, service, own })) {
    const reply = await look(token, own)
    t.equal(reply.status, 200, who)
    t.equal(reply.headers.get('X-Subject-Token'), own, who)
    t.match(reply.body, { token: { user: { name: 'demo' }, project: { name: 'demo' }, catalog: [] } }, who)
  }
  t.notOk('catalog' in ((await look(admin, own, '/v3/auth/tokens?nocatalog')).body as { token: object }).token)
  t.equal((await look(other, own)).status, 403, 'another user may not validate it')
  t.equal((await look(other, own, undefined, 'DELETE')).status, 403, 'or revoke it')
  const head = await look(own, own, undefined, 'HEAD')
  t.equal(head.status, 200)
  t.equal(head.headers.get('X-Subject-Token'), own)
  for (const method of ['GET', 'HEAD', 'DELETE']) {
    t.equal((await call(`${method} /v3/auth/tokens`, { token: admin })).status, 404, `${method} without a subject`)
    t.equal((await look(admin, 'nonsense', undefined, method)).status, 404, `${method} of a malformed token`)
    t.equal(
      (await call(`${method} /v3/auth/tokens`, { headers: { 'X-Subject-Token': own } })).status,
      401,
      `${method} without a token`,
    )
  }
  t.equal((await look(own, own, undefined, 'DELETE')).status, 204)
  t.equal((await look(admin, own)).status, 404, 'revoked as a subject')
  t.equal((await look(own, own)).status, 401, 'revoked as a bearer')
})

t.test('an expired token is refused, but readable with allow_expired for 48 hours', async t => {
  const age = async (token: string, interval: string) => {
    await database('token')
      .where({ sha256: tokenHash(token) })
      .update({ expires_at: database.raw(`now() - ?::interval`, [interval]) })
  }
  const token = await tokenOf('demo', 'demo')
  await age(token, '1 second')
  t.equal(await validate(token), null)
  t.equal((await call('GET /v3/auth/projects', { token })).status, 401)
  const subject = { token: admin, headers: { 'X-Subject-Token': token } }
  t.equal((await call('GET /v3/auth/tokens', subject)).status, 404)
  t.equal((await call('GET /v3/auth/tokens?allow_expired=1', subject)).status, 200)
  t.equal((await call('GET /v3/auth/tokens?allow_expired=0', subject)).status, 404)
  t.equal((await rescope(token)).status, 401)
  await age(token, '49 hours')
  t.equal((await call('GET /v3/auth/tokens?allow_expired=1', subject)).status, 404)
})

t.test('losing a right ends the tokens that depend on it at once', async t => {
  let count = 0
  const cases: Record<string, (user: string) => Promise<{ status: number }>> = {
    'password reset': user => call(`PATCH /v3/users/${user}`, { token: admin, body: { user: { password: 'new' } } }),
    'user disabled': user => call(`PATCH /v3/users/${user}`, { token: admin, body: { user: { enabled: false } } }),
    'user deleted': user => call(`DELETE /v3/users/${user}`, { token: admin }),
    'system grant removed': async user => {
      const grant = `/v3/system/users/${user}/roles/${await roleId('reader')}`
      await call(`PUT ${grant}`, { token: admin })
      const bearer = await tokenOf(`loser${count - 1}`, { system: { all: true } })
      const taken = await call(`DELETE ${grant}`, { token: admin })
      t.equal(await validate(bearer), null)
      return taken
    },
    'grant removed': async user =>
      call(`DELETE /v3/projects/${projects.demo}/users/${user}/roles/${await roleId('member')}`, { token: admin }),
  }
  for (const [what, take] of Object.entries(cases)) {
    const name = `loser${count++}`
    const user = await makeUser(name)
    const token = await tokenOf(name, 'demo')
    const unscoped = await tokenOf(name, { unscoped: {} })
    t.ok(await validate(token), what)
    t.ok((await take(user)).status < 300, what)
    t.equal((await validate(token)) !== null, what.startsWith('system'), what)
    t.equal((await validate(unscoped)) !== null, what.endsWith('grant removed'), `${what}: the unscoped token`)
  }
})

t.test('a new role counts only in existing tokens of its scope', async t => {
  const user = await makeUser('riser')
  const group = (await call('POST /v3/groups', { token: admin, body: { group: { name: 'risers' } } })).text('group.id')
  const token = await tokenOf('riser', 'demo')
  const unscoped = await tokenOf('riser', { unscoped: {} })
  const rolesOf = async (bearer: string) => (await validate(bearer))!.roles
  t.same(await rolesOf(token), ['member', 'reader'])
  await call(`PUT /v3/projects/${projects.demo}/users/${user}/roles/${await roleId('creator')}`, { token: admin })
  await call(`PUT /v3/projects/${projects.admin}/users/${user}/roles/${await roleId('audit')}`, { token: admin })
  t.same(await rolesOf(token), ['creator', 'member', 'reader'])
  await call(`PUT /v3/projects/${projects.demo}/groups/${group}/roles/${await roleId('observer')}`, { token: admin })
  await call(`PUT /v3/groups/${group}/users/${user}`, { token: admin })
  t.same(await rolesOf(token), ['creator', 'member', 'observer', 'reader'])
  t.same(await rolesOf(unscoped), [])
  t.notMatch(await call('GET /v3/auth/tokens', { token: unscoped, headers: { 'X-Subject-Token': unscoped } }), {
    body: { token: { roles: [] } },
  })
})

t.test('a disabled or deleted project or domain ends its tokens', async t => {
  const domain = (await call('POST /v3/domains', { token: admin, body: { domain: { name: 'acme' } } })).text(
    'domain.id',
  )
  const user = await makeUser('guest', { grant: false })
  const enter = async (domain_id: string) => {
    const made = await call('POST /v3/projects', { token: admin, body: { project: { name: 'p', domain_id } } })
    const id = made.text('project.id')
    await call(`PUT /v3/projects/${id}/users/${user}/roles/${await roleId('member')}`, { token: admin })
    return { id, token: await tokenOf('guest', { project: { id } }) }
  }
  const disabled = await enter(domain)
  await call(`PATCH /v3/projects/${disabled.id}`, { token: admin, body: { project: { enabled: false } } })
  t.equal(await validate(disabled.token), null, 'project disabled')
  t.equal((await login('guest', { project: { id: disabled.id } })).status, 401)
  await call(`DELETE /v3/projects/${disabled.id}`, { token: admin })

  const deleted = await enter(domain)
  t.equal((await call(`DELETE /v3/projects/${deleted.id}`, { token: admin })).status, 204)
  t.equal(await validate(deleted.token), null, 'project deleted')

  const inDomain = await enter(domain)
  t.equal(
    (await call(`DELETE /v3/domains/${domain}`, { token: admin })).status,
    403,
    'an enabled domain cannot be deleted',
  )
  await call(`PATCH /v3/domains/${domain}`, { token: admin, body: { domain: { enabled: false } } })
  t.equal(await validate(inDomain.token), null, 'domain disabled')
  t.equal((await login('guest', { project: { id: inDomain.id } })).status, 401)
  t.equal((await call(`DELETE /v3/domains/${domain}`, { token: admin })).status, 204)
  t.equal(
    (await call(`GET /v3/projects/${inDomain.id}`, { token: admin })).status,
    404,
    'its projects are deleted with it',
  )
})

t.test('a login that races the loss of its right gets no token', async t => {
  const changes = { disabled: { enabled: false }, 'given another password': { password_hash: 'scrypt$1$1$1$a$b' } }
  for (const [what, change] of Object.entries(changes)) {
    const name = `racer-${Object.keys(change)[0]}`
    const user = await makeUser(name)
    const [reply] = await database.transaction(async trx => {
      await lockRights(trx)
      const entering = login(name, 'demo')
      // By the time the login waits for the lock, it has read the old password.
      await until(async () => {
        const { rows } = await database.raw(`SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
          WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted`)
        return rows.length > 0
      })
      await trx('local_user').where({ id: user }).update(change)
      return [entering]
    })
    t.equal((await reply!).status, 401, `user ${what}`)
  }
})

t.test('the validator identifies the caller in one query', async t => {
  const token = await tokenOf('octavia', 'service')
  let queries = 0
  const count = () => queries++
  database.on('query', count)
  const caller = await validate(token)
  database.removeListener('query', count)
  t.equal(queries, 1)
  t.match(caller, {
    user: { name: 'octavia' },
    project: { name: 'service', domain: { id: 'default' } },
    domain: null,
    system: false,
  })
  t.ok(caller!.roles.includes('admin') && caller!.roles.includes('service'))
  t.ok(caller!.expiresAt.getTime() > Date.now())
  t.equal(await validate('nonsense'), null)
})

t.test('purging deletes tokens that expired more than 48 hours ago, and no others', async t => {
  const [old, young] = [await tokenOf('demo', 'demo'), await tokenOf('demo', 'demo')].map(tokenHash)
  const age = (sha256: Buffer, hours: number) =>
    database('token')
      .where({ sha256 })
      .update({ expires_at: database.raw(`now() - ? * interval '1 hour'`, [hours]) })
  await age(old!, 49)
  await age(young!, 47)
  await purgeExpiredTokens(database)
  t.same(await database('token').whereIn('sha256', [old!, young!]).pluck('sha256'), [young!])
})

t.test('one purge deletes any number of tokens', async t => {
  await database.raw(
    `INSERT INTO token (sha256, user_id, document, expires_at)
     SELECT sha256(n::text::bytea), (SELECT id FROM local_user WHERE name = 'demo'), '{}', now() - interval '49 hours'
       FROM generate_series(1, 2500) n`,
  )
  await purgeExpiredTokens(database)
  const left = await database('token').whereRaw(`expires_at < now() - interval '48 hours'`)
  t.equal(left.length, 0)
})

t.test('a user has a bounded number of tokens, and existing ones stay valid', async t => {
  const recorded = recordLog()
  const { call, login, tokenOf, database, stop } = await startIdentity({
    settings: { max_tokens_per_user: 20 },
    log: recorded.log,
  })
  t.teardown(stop)
  const first = await tokenOf('demo', 'demo')
  const rescope = (token: string) =>
    call('POST /v3/auth/tokens', { body: { auth: { identity: { methods: ['token'], token: { id: token } } } } })
  const flood = await Promise.all(Array.from({ length: 80 }, () => rescope(first)))
  const refused = flood.filter(({ status }) => status === 429)
  t.ok(refused.length >= 40, `${refused.length} of 80 refused`)
  t.match(refused[0]?.headers.get('Retry-After'), '60')
  t.equal((await rescope(first)).status, 429)
  t.equal((await login('demo', 'demo')).status, 429)
  t.equal((await login('admin', 'admin')).status, 201, 'another user logs in')
  t.equal((await call('GET /v3/auth/projects', { token: first })).status, 200, 'the oldest token is still valid')
  const { id } = await database('local_user').where({ name: 'demo' }).first('id')
  t.same(
    recorded.lines.filter(({ level }) => level >= 40).map(({ flood }) => flood),
    [`Tokens of user ${id}`],
    'one line is logged',
  )

  const made = await call(`POST /v3/users/${id}/application_credentials`, {
    token: first,
    body: { application_credential: { name: 'robot', secret: 'robot-pw' } },
  })
  const robot = { id: made.text('application_credential.id'), secret: 'robot-pw' }
  const asRobot = { auth: { identity: { methods: ['application_credential'], application_credential: robot } } }
  t.equal(
    (await call('POST /v3/auth/tokens', { body: asRobot })).status,
    201,
    'application credentials count separately',
  )

  const revoke = {
    token: first,
    headers: { 'X-Subject-Token': flood.find(({ status }) => status === 201)!.headers.get('X-Subject-Token')! },
  }
  t.equal((await call('DELETE /v3/auth/tokens', revoke)).status, 204)
  const before = (await database('token').where({ user_id: id })).length
  await database('token')
    .where({ user_id: id })
    .update({ expires_at: database.raw(`now() - interval '1 minute'`) })
  t.equal((await login('demo', 'demo')).status, 201)
  t.equal((await login('demo', 'demo')).status, 201, 'expired tokens make room')
  t.ok((await database('token').where({ user_id: id })).length < before)
})

t.test('the database holds neither tokens nor passwords in clear text', async t => {
  const token = await tokenOf('demo', 'demo')
  const { rows } = await database.raw('SELECT t::text AS line FROM token t UNION ALL SELECT u::text FROM local_user u')
  const dump = rows.map((row: { line: string }) => row.line).join('\n')
  t.notMatch(dump, token)
  t.notMatch(dump, 'demo-pw')
  t.notMatch(dump, Buffer.from(token).toString('hex'))
})
