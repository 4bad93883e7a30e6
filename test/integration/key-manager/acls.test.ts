import { randomUUID } from 'node:crypto'
import t from 'tap'
import { FOREIGN, tokenOf } from '../../support/clients/callers.js'
import type { Json } from '../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'

const { ask, store, database, statementsOf, url, stop } = await startTestKeyManager()
t.teardown(stop)

/** Creates an object of each kind that has an ACL. @returns its path */
const KINDS: Record<'secret' | 'container', (token?: string) => Promise<string>> = {
  secret: async token => `/v1/secrets/${await store(undefined, token)}`,
  container: async token => {
    const { body } = await ask('POST', '/v1/containers', { type: 'generic' }, { token })
    return new URL(String(body.container_ref)).pathname
  },
}
const JSON_TYPE = { 'Content-Type': 'application/json' }
const readOf = (body: Json) => body.read as Json
const usersOf = (body: Json) => [...(readOf(body).users as string[])].sort()

for (const [kind, make] of Object.entries(KINDS)) {
  t.test(`the ACL of a ${kind}: PUT replaces it, PATCH merges into it, DELETE removes it`, async t => {
    const path = await make()
    const acl = `${path}/acl`
    const change = (method: string, body: unknown) => ask(method, acl, body)
    const shown = async () => (await ask('GET', acl)).body

    t.same(await shown(), { read: { 'project-access': true } }, 'the default without an ACL')
    const deleted = await ask('DELETE', acl)
    t.same([deleted.status, deleted.text], [200, 'null'], 'an ACL that does not exist can be deleted')

    const { body: before } = await ask('GET', path)
    const put = await change('PUT', { read: { users: ['u2', 'u1', 'u2', ' u3 '], 'project-access': false } })
    t.same([put.status, put.body], [200, { acl_ref: `${url}${acl}` }])
    const first = await shown()
    t.same(usersOf(first), ['u1', 'u2', 'u3'], 'duplicates are removed')
    t.match(first, { read: { 'project-access': false, created: /^\d{4}-/, updated: /^\d{4}-/ } })
    t.same(Object.keys(first), ['read'])
    t.same(Object.keys(readOf(first)).sort(), ['created', 'project-access', 'updated', 'users'])
    const { body: after } = await ask('GET', path)
    t.ok(String(after.updated) > String(before.updated), 'the object’s "updated" advances')
    t.notOk('users' in after, 'the object does not show its ACL')

    t.equal((await change('PATCH', { read: { 'project-access': true } })).status, 200)
    const merged = await shown()
    t.same([usersOf(merged), readOf(merged)['project-access']], [['u1', 'u2', 'u3'], true])
    t.equal(readOf(merged).created, readOf(first).created)
    t.ok(String(readOf(merged).updated) > String(readOf(first).updated))
    const patched = await change('PATCH', { read: { users: ['u4'] } })
    t.same([patched.status, patched.body], [200, { acl_ref: `${url}${acl}` }])
    t.same(usersOf(await shown()), ['u4'], 'PATCH replaces the list of users')
    await change('PATCH', { read: { users: [] } })
    t.same([usersOf(await shown()), readOf(await shown())['project-access']], [[], true])

    const unchanged = await shown()
    for (const body of [{}, { read: {} }]) t.equal((await change('PATCH', body)).status, 200)
    t.same(await shown(), unchanged, 'an empty PATCH changes nothing')

    await change('PUT', { read: { 'project-access': false } })
    t.match(await shown(), { read: { users: [], 'project-access': false } })
    await change('PUT', { read: { users: ['u5'] } })
    t.match(
      await shown(),
      { read: { users: ['u5'], 'project-access': true } },
      'PUT sets omitted fields to their defaults',
    )
    for (const body of [{}, { read: {} }]) {
      await change('PATCH', { read: { users: ['u6'], 'project-access': false } })
      t.equal((await change('PUT', body)).status, 200)
      t.same(await shown(), { read: { 'project-access': true } }, 'an empty PUT removes the ACL')
    }
    await change('PATCH', { read: { users: ['u7'] } })
    t.match(await shown(), { read: { users: ['u7'], 'project-access': true } }, 'PATCH creates an ACL')
    t.equal((await ask('DELETE', acl)).text, 'null')
    t.same(await shown(), { read: { 'project-access': true } })
    t.equal((await ask('POST', acl, { read: {} })).status, 405)
  })

  t.test(`PUT and PATCH refuse an invalid ACL of a ${kind}`, async t => {
    const path = await make()
    const wrong = [
      ...[
        [],
        null,
        1,
        { write: {} },
        { read: null },
        { read: [] },
        { read: { users: 'u' } },
        { read: { users: null } },
      ],
      ...[{ read: { users: [1] } }, { read: { users: [null] } }, { read: { users: ['u'.repeat(256)] } }],
      ...[{ read: { users: [''] } }, { read: { users: ['\0'] } }, { read: { 'project-access': 'true' } }],
      ...[{ read: { 'project-access': null } }, { read: { 'project-access': 1 } }, { read: { project_access: true } }],
      ...[{ read: { users: ['u'] }, name: 'x' }, { read: { users: ['u'], name: 'x' } }],
    ]
    for (const method of ['PUT', 'PATCH']) {
      for (const body of wrong) {
        t.equal((await ask(method, `${path}/acl`, body)).status, 400, `${method} ${JSON.stringify(body)}`)
      }
      t.equal((await ask(method, `${path}/acl`, undefined, { raw: '{}' })).status, 415)
      t.equal((await ask(method, `${path}/acl`, undefined, { raw: '', headers: JSON_TYPE })).status, 400)
      t.equal((await ask(method, `/v1/${kind}s/${randomUUID()}/acl`, { read: {} })).status, 404)
      t.equal((await ask(method, `/v1/${kind}s/x/acl`, { read: {} })).status, 404)
    }
    t.same(
      (await ask('GET', `${path}/acl`)).body,
      { read: { 'project-access': true } },
      'a refused request changes nothing',
    )
    t.equal((await ask('PUT', `${path}/acl`, { read: { users: ['u'.repeat(255)] } })).status, 200)
    await ask('DELETE', path)
    for (const method of ['GET', 'DELETE']) t.equal((await ask(method, `${path}/acl`)).status, 404)
  })

  t.test(`a change of the ACL of a ${kind} is audited without user names`, async t => {
    const path = await make()
    const id = path.slice(-36)
    const acl = `${path}/acl`
    const foreign = tokenOf('member', FOREIGN)
    const statements = await statementsOf(() => ask('PUT', acl, { read: { users: ['somebody', 'else'] } }))
    t.equal(statements.length, 2, 'one statement reads, one changes and records')
    await ask('PATCH', acl, { read: { 'project-access': false } })
    await ask('PATCH', acl, {})
    await ask('PUT', acl, { read: { users: ['refused'] } }, { token: foreign })
    await ask('DELETE', acl)
    await ask('DELETE', acl)
    const records = await database('audit_record')
      .where({ target_id: id })
      .whereLike('action', '%.acl.%')
      .orderBy('seq')
    t.match(records, [
      {
        action: `${kind}.acl.change`,
        outcome: 'success',
        target_type: kind,
        user_id: 'user-member',
        request_id: /^req-/,
        detail: { users: 2, project_access: true },
      },
      { action: `${kind}.acl.change`, outcome: 'success', detail: { users: 2, project_access: false } },
      { action: `${kind}.acl.change`, outcome: 'denied', project_id: FOREIGN, detail: { status: 403 } },
      { action: `${kind}.acl.delete`, outcome: 'success', detail: null },
    ])
    t.equal(records.length, 4, 'an empty change leaves no record')
    t.notMatch(JSON.stringify(records), 'somebody')
    t.equal((await statementsOf(() => ask('GET', acl))).length, 2, 'one statement reads, one records')
  })

  t.test(`concurrent PATCHes of the ACL of a ${kind} both take effect`, async t => {
    const path = await make()
    const parts = [{ users: ['u1', 'u2'] }, { 'project-access': false }]
    const answers = await Promise.all(parts.map(read => ask('PATCH', `${path}/acl`, { read })))
    t.same(
      answers.map(({ status }) => status),
      [200, 200],
    )
    t.match((await ask('GET', `${path}/acl`)).body, { read: { users: ['u1', 'u2'], 'project-access': false } })
  })
}

t.test('a user on the ACL may read from any project with any role, at once, and may do nothing else', async t => {
  const secret = await KINDS.secret()
  const container = await KINDS.container()
  const token = tokenOf('nobody', FOREIGN)
  const get = async (path: string) => (await ask('GET', path, undefined, { token })).status
  const readable = [secret, `${secret}/payload`, `${secret}/metadata`, `${secret}/consumers`]
  readable.push(container, `${container}/consumers`)
  const listing = (users: string[]) =>
    Promise.all([secret, container].map(path => ask('PUT', `${path}/acl`, { read: { users } })))

  for (const path of readable) t.equal(await get(path), 403, `${path} before`)
  for (let round = 0; round < 3; round++) {
    await listing(['user-nobody'])
    for (const path of readable) t.equal(await get(path), 200, path)
    await listing(['user-somebody'])
    for (const path of readable) t.equal(await get(path), 403, `${path} after removal from the list`)
  }
  const removals: [string, unknown?][] = [['DELETE'], ['PUT', {}]]
  for (const [method, body] of removals) {
    await listing(['user-nobody'])
    t.equal(await get(secret), 200)
    for (const path of [secret, container]) await ask(method, `${path}/acl`, body)
    for (const path of readable) t.equal(await get(path), 403, `${path} after the ACL is removed`)
  }
  await listing(['user-nobody'])
  const refused: [string, string, unknown?][] = [
    ['DELETE', secret],
    ['GET', `${secret}/acl`],
    ['PUT', `${secret}/acl`, { read: {} }],
    ['PATCH', `${secret}/acl`, { read: { users: ['x'] } }],
    ['DELETE', `${secret}/acl`],
    ['PUT', `${secret}/metadata`, { metadata: {} }],
    ['DELETE', container],
    ['GET', `${container}/acl`],
    ['PUT', `${container}/acl`, { read: {} }],
    ['DELETE', `${container}/acl`],
    ['POST', `${container}/secrets`, { secret_ref: `${url}${secret}` }],
  ]
  for (const [method, path, body] of refused) {
    t.equal((await ask(method, path, body, { token })).status, 403, `${method} ${path}`)
  }
  t.match((await ask('GET', '/v1/containers', undefined, { token: tokenOf('member', FOREIGN) })).body, { total: 0 })
})

t.test('without project access, only the creator and the project’s administrators read an object', async t => {
  for (const make of Object.values(KINDS)) {
    const path = await make(tokenOf('creator'))
    const get = async (roles: string, project?: string) =>
      (await ask('GET', path, undefined, { token: tokenOf(roles, project) })).status
    t.equal(await get('member'), 200)
    await ask('PUT', `${path}/acl`, { read: { 'project-access': false } }, { token: tokenOf('creator') })
    t.same(
      await Promise.all([get('member'), get('observer'), get('creator'), get('admin')]),
      [403, 403, 200, 200],
      path,
    )
    await ask('DELETE', `${path}/acl`, undefined, { token: tokenOf('creator') })
    t.equal(await get('member'), 200, 'without an ACL, the project has access')
  }
})

t.test('the ACL of a container does not cover its secrets', async t => {
  const secret = await KINDS.secret()
  const body = { type: 'generic', secret_refs: [{ name: 'a', secret_ref: `${url}${secret}` }] }
  const made = await ask('POST', '/v1/containers', body)
  const path = new URL(String(made.body.container_ref)).pathname
  await ask('PUT', `${path}/acl`, { read: { users: ['user-nobody'] } })
  const token = tokenOf('nobody', FOREIGN)
  const shown = await ask('GET', path, undefined, { token })
  t.match(shown, { status: 200, body: { secret_refs: body.secret_refs } })
  t.equal((await ask('GET', `${secret}/payload`, undefined, { token })).status, 403)
})
