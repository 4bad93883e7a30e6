import { randomUUID } from 'node:crypto'
import t from 'tap'
import { FOREIGN, tokenOf } from '../../../support/clients/callers.js'
import type { Json } from '../../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'

const { ask, store, database, statementsOf, url, stop } = await startTestKeyManager()
t.teardown(stop)

const secretRef = (id: string) => `${url}/v1/secrets/${id}`
const refs = async (...names: (string | null)[]) =>
  Promise.all(names.map(async name => ({ name, secret_ref: secretRef(await store()) })))
const make = (body: unknown, token?: string) => ask('POST', '/v1/containers/', body, { token })
const pathOf = (body: Json) => new URL(String(body.container_ref)).pathname
const madePath = async (body: unknown = { type: 'generic' }, token?: string) => pathOf((await make(body, token)).body)

t.test('a stored container reads back as created; deleting it keeps its secrets', async t => {
  const secret_refs = await refs('private_key', 'certificate', 'intermediates', 'private_key_passphrase')
  const made = await make({ name: ' crt ', type: 'certificate', secret_refs, surplus: { is: 'passed over' } })
  t.equal(made.status, 201)
  t.equal(made.headers.get('location'), made.body.container_ref)
  t.same(Object.keys(made.body), ['container_ref'])
  const shown = await ask('GET', pathOf(made.body))
  t.equal(shown.status, 200)
  const { created, updated, ...rest } = shown.body
  t.equal(created, updated)
  t.match(created, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?$/)
  t.same(rest, {
    status: 'ACTIVE',
    name: 'crt',
    type: 'certificate',
    creator_id: 'user-member',
    secret_refs,
    consumers: [],
    container_ref: made.body.container_ref,
  })
  t.equal((await ask('DELETE', pathOf(made.body))).status, 204)
  t.equal((await ask('GET', pathOf(made.body))).status, 404)
  t.equal((await ask('DELETE', pathOf(made.body))).status, 404)
  for (const { secret_ref } of secret_refs) {
    t.equal((await ask('GET', new URL(secret_ref).pathname)).status, 200, 'its secrets remain')
  }
})

t.test('POST validates its body', async t => {
  const [a, b] = await refs('a', 'b')
  const key = await refs('public_key', 'private_key', 'private_key_passphrase')
  const cases: [string, unknown, number][] = [
    ['only a type', { type: 'generic' }, 201],
    ['no name', { type: 'generic', name: null, secret_refs: [] }, 201],
    ['a reference without a name', { type: 'generic', secret_refs: [{ secret_ref: a?.secret_ref }] }, 201],
    ['rsa', { type: 'rsa', secret_refs: key }, 201],
    ['rsa without a passphrase', { type: 'rsa', secret_refs: key.slice(0, 2) }, 201],
    ['a slash at the end of a reference', { type: 'generic', secret_refs: [{ secret_ref: `${a?.secret_ref}/` }] }, 201],
    ['a name of 255 characters', { type: 'generic', name: 'n'.repeat(255) }, 201],
    ['a name of 256 characters', { type: 'generic', name: 'n'.repeat(256) }, 400],
    ['a number as name', { type: 'generic', name: 1 }, 400],
    ['no type', { name: 'n' }, 400],
    ['another type', { type: 'dsa' }, 400],
    ['a type in capitals', { type: 'Generic' }, 400],
    ['null as references', { type: 'generic', secret_refs: null }, 400],
    ['an object as references', { type: 'generic', secret_refs: {} }, 400],
    ['a reference that is not an object', { type: 'generic', secret_refs: ['x'] }, 400],
    ['a reference without a secret', { type: 'generic', secret_refs: [{ name: 'x' }] }, 400],
    ['an empty reference', { type: 'generic', secret_refs: [{ name: 'x', secret_ref: ' ' }] }, 400],
    ['a NUL in a name', { type: 'generic', name: '\0' }, 400],
    ['the same name twice', { type: 'generic', secret_refs: [a, { ...b, name: 'a' }] }, 400],
    [
      'two references without a name',
      { type: 'generic', secret_refs: [{ secret_ref: a?.secret_ref }, { ...b, name: null }] },
      400,
    ],
    ['the same secret twice', { type: 'generic', secret_refs: [a, { ...a, name: 'x' }] }, 400],
    ['rsa without a public key', { type: 'rsa', secret_refs: key.slice(1) }, 400],
    ['rsa with an unexpected name', { type: 'rsa', secret_refs: [...key, a] }, 400],
    ['rsa without references', { type: 'rsa' }, 400],
    ['a certificate without a private key', { type: 'certificate', secret_refs: [{ ...a, name: 'certificate' }] }, 400],
    ['a private key without a certificate', { type: 'certificate', secret_refs: [{ ...a, name: 'private_key' }] }, 400],
    ['a certificate without references', { type: 'certificate', secret_refs: [] }, 400],
    [
      'a certificate with an unexpected name',
      { type: 'certificate', secret_refs: [{ ...a, name: 'certificate' }, { ...b, name: 'private_key' }, key[0]] },
      400,
    ],
    [
      'a secret of another service',
      { type: 'generic', secret_refs: [{ secret_ref: `http://elsewhere/v1/secrets/${randomUUID()}` }] },
      400,
    ],
    [
      'a service whose address has this one’s as a prefix',
      { type: 'generic', secret_refs: [{ secret_ref: a?.secret_ref.replace(url, `${url}0`) }] },
      400,
    ],
    ['a bare id', { type: 'generic', secret_refs: [{ secret_ref: randomUUID() }] }, 400],
    ['an unknown secret', { type: 'generic', secret_refs: [{ secret_ref: secretRef(randomUUID()) }] }, 404],
    ['a reference with a malformed id', { type: 'generic', secret_refs: [{ secret_ref: secretRef('x') }] }, 404],
    ['a list', [], 400],
    ['null', null, 400],
  ]
  for (const [label, body, status] of cases) t.equal((await make(body)).status, status, label)
  t.equal((await ask('POST', '/v1/containers', undefined, { raw: '{', headers: JSON_TYPE })).status, 400)
  t.equal((await ask('POST', '/v1/containers', undefined, { raw: '', headers: JSON_TYPE })).status, 400)
  t.equal((await ask('POST', '/v1/containers', undefined, { raw: '{"type":"generic"}' })).status, 415)
  const charset = { 'Content-Type': 'application/json; charset=utf-8' }
  t.equal((await ask('POST', '/v1/containers', undefined, { raw: '{"type":"generic"}', headers: charset })).status, 201)
})

const JSON_TYPE = { 'Content-Type': 'application/json' }

t.test('a reference to a secret that the caller cannot use is 404', async t => {
  const gone = await store()
  await ask('DELETE', `/v1/secrets/${gone}`)
  const soon = await store({ name: 'soon', expiration: new Date(Date.now() + 3_600_000).toISOString() })
  await database('secret')
    .where({ id: soon })
    .update({ expiration: new Date(0) })
  const foreign = await store(undefined, tokenOf('member', FOREIGN))
  const listed = await store(undefined, tokenOf('member', FOREIGN))
  await database('secret')
    .where({ id: listed })
    .update({ acl_users: ['user-member'] })
  t.equal((await ask('GET', `/v1/secrets/${listed}/payload`)).status, 200, 'the ACL lets the caller read the secret')
  const hidden = await store(undefined, tokenOf('creator'))
  await database('secret').where({ id: hidden }).update({ acl_project_access: false })
  const own = await store()
  const path = await madePath()
  const before = await database('container').count()
  for (const [label, id] of Object.entries({ gone, soon, foreign, listed, hidden })) {
    const both = [own, id].map(secret => ({ name: secret, secret_ref: secretRef(secret) }))
    t.equal((await make({ type: 'generic', secret_refs: both })).status, 404, label)
    t.equal((await ask('POST', `${path}/secrets`, both[1])).status, 404, `${label}, added`)
  }
  t.same(await database('container').count(), before, 'no refused request stores anything')
  const reference = { name: 'x', secret_ref: secretRef(hidden) }
  for (const token of [tokenOf('admin'), tokenOf('creator')]) {
    t.equal(
      (await make({ type: 'generic', secret_refs: [reference] }, token)).status,
      201,
      'callers who may read the secret may refer to it',
    )
  }
})

t.test('secrets are added to and removed from generic containers only', async t => {
  const [a, b] = await refs('a', 'b')
  const path = await madePath({ type: 'generic', secret_refs: [a] })
  const { body: before } = await ask('GET', path)
  const added = await ask('POST', `${path}/secrets/`, b)
  t.equal(added.status, 201)
  t.same(added.body, { container_ref: before.container_ref })
  t.equal(added.headers.get('location'), before.container_ref)
  const { body: after } = await ask('GET', path)
  t.same(after.secret_refs, [a, b])
  t.ok(String(after.updated) > String(before.updated))
  t.equal((await ask('POST', `${path}/secrets`, b)).status, 409)
  t.equal((await ask('POST', `${path}/secrets`, { ...b, name: 'again' })).status, 201, 'under another name')
  t.equal((await ask('POST', `${path}/secrets`, { secret_ref: b?.secret_ref })).status, 201, 'without a name')
  t.equal((await ask('POST', `${path}/secrets`, { secret_ref: b?.secret_ref, name: null })).status, 409)
  t.equal((await ask('POST', `${path}/secrets`, { name: 'x' })).status, 400)
  t.equal((await ask('POST', `${path}/secrets`, { secret_ref: 'http://elsewhere/x' })).status, 400)
  t.equal((await ask('GET', `${path}/secrets`)).status, 405)

  const plain = { headers: { 'Content-Type': 'text/plain' } }
  t.equal((await ask('DELETE', `${path}/secrets`, undefined, { raw: JSON.stringify(a), ...plain })).status, 204)
  t.equal((await ask('DELETE', `${path}/secrets`, a)).status, 404)
  t.equal((await ask('DELETE', `${path}/secrets`, { secret_ref: b?.secret_ref })).status, 204)
  t.equal((await ask('DELETE', `${path}/secrets`, { ...b, name: 'other' })).status, 404)
  t.equal((await ask('DELETE', `${path}/secrets`, { secret_ref: secretRef(randomUUID()) })).status, 404)
  t.equal((await ask('DELETE', `${path}/secrets`)).status, 400)
  t.same((await ask('GET', path)).body.secret_refs, [b, { ...b, name: 'again' }])

  const fixed = await madePath({ type: 'rsa', secret_refs: await refs('public_key', 'private_key') })
  t.equal((await ask('POST', `${fixed}/secrets`, a)).status, 400)
})

t.test('an unknown container id is 404, an unsupported method 405', async t => {
  const version1 = '7b4c8f1e-1f36-11ef-8d3c-0242ac120002'
  for (const id of [randomUUID(), 'x', randomUUID().toUpperCase(), version1]) {
    for (const path of [`/v1/containers/${id}`, `/v1/containers/${id}/consumers`]) {
      t.equal((await ask('GET', path)).status, 404)
    }
  }
  const path = await madePath()
  t.equal((await ask('PUT', path, {})).status, 405)
  t.equal((await ask('PATCH', path, {})).status, 405)
  t.equal((await ask('GET', `${path}/other`)).status, 404)
})

t.test('the list filters by name pattern and type, and pages', async t => {
  const token = tokenOf('member', 'project of lists')
  const names = ['one', 'two', 'three_', 'back\\slash', '%']
  for (const name of names) await make({ type: 'generic', name }, token)
  const secret_refs = ['public_key', 'private_key'].map(name => ({ name, secret_ref: '' }))
  for (const reference of secret_refs) reference.secret_ref = secretRef(await store(undefined, token))
  await make({ type: 'rsa', name: 'key', secret_refs }, token)
  const list = async (query: string) => (await ask('GET', `/v1/containers?${query}`, undefined, { token })).body
  const namesOf = async (query: string) => ((await list(query)).containers as Json[]).map(({ name }) => name)
  t.same(await namesOf(''), [...names, 'key'], 'in order of creation')
  t.match(await list('type=rsa'), { total: 1, containers: [{ name: 'key', secret_refs }] })
  t.match(await list('type=rs'), { total: 0, containers: [] })
  t.same(await namesOf('name=t%25'), ['two', 'three_'])
  t.same(await namesOf('name=_wo'), ['two'])
  t.same(await namesOf('name=two'), ['two'])
  t.same(await namesOf('name=tw'), [])
  t.same(await namesOf('name=back%5C%25'), ['back\\slash'])
  t.same(await namesOf('name=%5C'), [], 'a pattern that ends with a backslash')
  t.same(await namesOf('name=%25&type=rsa'), ['key'])
  t.equal((await ask('GET', '/v1/containers?name=%00', undefined, { token })).status, 400)
  t.equal((await list('name=&type=')).total, 6, 'an empty filter matches everything')
  const page = await list('limit=2&offset=2&name=%25&surplus=1')
  t.same([page.total, (page.containers as Json[]).length], [6, 2])
  const links = [page.previous, page.next].map(link => new URL(String(link)))
  t.same(
    links.map(({ searchParams }) => ['offset', 'limit', 'name'].map(key => searchParams.get(key))),
    [
      ['0', '2', '%'],
      ['4', '2', '%'],
    ],
    'the links keep the query',
  )
  t.same(await list('offset=99'), { containers: [], total: 6 })
  t.match(await list('limit=0'), { total: 6, containers: [{ name: 'one' }] })
  t.equal(((await list('limit=x&offset=-1')).containers as Json[]).length, 6)
  const statements = await statementsOf(() => list('limit=100'))
  t.equal(statements.length, 1)
  const [first] = (await list('')).containers as Json[]
  t.equal((await statementsOf(() => ask('GET', pathOf(first ?? {}), undefined, { token }))).length, 1)
})

t.test('a container refers to at most a thousand secrets', async t => {
  const path = await madePath()
  const secret = await store()
  await database.raw(
    `INSERT INTO container_secret (container_id, secret_id, name) SELECT ?, ?, n::text FROM generate_series(1, 999) n`,
    [path.slice(-36), secret],
  )
  const add = async (name: string) =>
    (await ask('POST', `${path}/secrets`, { name, secret_ref: `${url}/v1/secrets/${secret}` })).status
  t.equal(await add('the last'), 201)
  t.equal(await add('one more'), 400)
  t.equal(((await ask('GET', path)).body.secret_refs as Json[]).length, 1000)
})

t.test('consumers register, are listed by name, and deregister; registering twice changes nothing', async t => {
  const path = await madePath()
  const lb = { name: 'lb', URL: 'https://lb.example/1' }
  const { body: before } = await ask('GET', path)
  const registered = await ask('POST', `${path}/consumers/`, lb)
  t.equal(registered.status, 200)
  t.match(registered.body, { container_ref: before.container_ref, type: 'generic', consumers: [lb] })
  t.ok(String(registered.body.updated) > String(before.updated))
  const again = await ask('POST', `${path}/consumers`, { ...lb, surplus: 1 })
  t.same([again.status, again.body.consumers, again.body.updated], [200, [lb], registered.body.updated])
  const single = await ask('GET', new URL(String(again.headers.get('location'))).pathname)
  t.match(single, { status: 200, body: { ...lb, status: 'ACTIVE', created: /^\d{4}-/, updated: /^\d{4}-/ } })
  t.same(Object.keys(single.body).sort(), ['URL', 'created', 'name', 'status', 'updated'])
  for (const other of [randomUUID(), 'x']) t.equal((await ask('GET', `${path}/consumers/${other}`)).status, 404)
  const elsewhere = await madePath()
  const id = new URL(String(again.headers.get('location'))).pathname.slice(-36)
  t.equal(
    (await ask('GET', `${elsewhere}/consumers/${id}`)).status,
    404,
    'a consumer of another container is not found',
  )

  for (const n of [3, 2, 4]) await ask('POST', `${path}/consumers`, { name: `app ${n}`, URL: 'u' })
  const page = await ask('GET', `${path}/consumers?limit=2&offset=1`)
  t.match(page.body, { total: 4, consumers: [{ name: 'app 3' }, { name: 'app 4' }] }, 'consumers are ordered by name')
  t.equal(page.body.next, `${url}${path}/consumers?limit=2&offset=3`)
  t.equal(page.body.previous, `${url}${path}/consumers?limit=2&offset=0`)
  t.same(Object.keys((page.body.consumers as Json[])[0] ?? {}).sort(), ['URL', 'created', 'name', 'status', 'updated'])

  const removed = await ask('DELETE', `${path}/consumers`, lb)
  t.equal(removed.status, 200)
  t.same(
    (removed.body.consumers as Json[]).map(({ name }) => name),
    ['app 2', 'app 3', 'app 4'],
  )
  t.equal((await ask('DELETE', `${path}/consumers`, lb)).status, 404)
  t.equal((await ask('POST', `${path}/consumers`, lb)).status, 200, 'the consumer registers again')
  const wrong = [
    ...[{ name: 'x' }, { URL: 'x' }, { ...lb, name: '' }, { ...lb, name: 'n'.repeat(37) }, { ...lb, URL: '' }],
    ...[{ ...lb, URL: 'u'.repeat(256) }, { ...lb, name: null }, { ...lb, URL: 1 }, [], null],
  ]
  for (const body of wrong) t.equal((await ask('POST', `${path}/consumers`, body)).status, 400, JSON.stringify(body))
  t.equal((await ask('DELETE', `${path}/consumers`, undefined, { raw: '{}' })).status, 415)
  t.equal((await ask('DELETE', `${path}/consumers`, { name: 'x' })).status, 400)
  t.equal((await ask('DELETE', path)).status, 204, 'a container with consumers can be deleted')
  t.equal((await ask('GET', `${path}/consumers`)).status, 404)
  const id36 = path.slice(-36)
  t.same(await database('container_consumer').where({ container_id: id36 }), [])
})

t.test('other projects register consumers as the ACL allows and remove only their own', async t => {
  const path = await madePath()
  const [first, second] = ['one', 'two'].map(project => ({
    token: tokenOf(`role-of-${project}`, `project ${project}`),
    consumer: { name: project, URL: 'u' },
  }))
  if (first === undefined || second === undefined) throw new Error('There are not two consumers.')
  t.equal((await ask('POST', `${path}/consumers`, first.consumer, { token: first.token })).status, 403)
  await ask('PUT', `${path}/acl`, { read: { users: ['user-role-of-one', 'user-role-of-two'] } })
  for (const { token, consumer } of [first, second]) {
    t.match(await ask('POST', `${path}/consumers`, consumer, { token }), { status: 200 })
  }
  const remove = (consumer: object, token?: string) => ask('DELETE', `${path}/consumers`, consumer, { token })
  t.equal(
    (await remove(second.consumer, first.token)).status,
    403,
    'a project may not remove another project’s consumer',
  )
  t.equal((await remove({ name: 'x', URL: 'x' }, first.token)).status, 404)
  t.equal((await remove(first.consumer, first.token)).status, 200, 'a project may remove its own')
  t.match(
    await remove(second.consumer),
    { status: 200, body: { consumers: [] } },
    'the container’s owner may remove any',
  )
})

t.test('of a deletion and a use of a secret at the same time, exactly one succeeds', { timeout: 60_000 }, async t => {
  const outcomes = new Map<string, number>()
  const rounds = 60
  const path = await madePath()
  for (let round = 0; round < rounds; round++) {
    const id = await store({ name: `round ${round}` })
    const reference = { name: `round ${round}`, secret_ref: secretRef(id) }
    const use = () =>
      round % 3 === 0 ? ask('POST', `${path}/secrets`, reference) : make({ type: 'generic', secret_refs: [reference] })
    const remove = () => ask('DELETE', `/v1/secrets/${id}`)
    const requests = round % 2 === 0 ? [use(), remove()] : [remove(), use()].reverse()
    const [used, removed] = await Promise.all(requests)
    const outcome = `${used?.status} ${removed?.status}`
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
  }
  t.same(
    [...outcomes.keys()].filter(outcome => !['201 409', '404 204'].includes(outcome)),
    [],
    JSON.stringify([...outcomes]),
  )
  const { rows } = await database.raw(
    'SELECT count(*) FROM container_secret r JOIN secret s ON s.id = r.secret_id WHERE s.deleted_at IS NOT NULL',
  )
  t.equal(rows[0].count, 0, 'no container refers to a deleted secret')
})

t.test('a container deleted during a request keeps no consumer or reference from it', async t => {
  for (let round = 0; round < 20; round++) {
    const path = await madePath()
    const reference = { name: 'x', secret_ref: secretRef(await store()) }
    const answers = await Promise.all([
      ask('POST', `${path}/consumers`, { name: 'lb', URL: 'u' }),
      ask('POST', `${path}/secrets`, reference),
      ask('DELETE', path),
    ])
    t.ok(answers.every(({ status }) => status < 500))
  }
  const { rows } = await database.raw(
    `SELECT (SELECT count(*) FROM container_consumer u JOIN container c ON c.id = u.container_id WHERE c.deleted_at IS NOT NULL)
          + (SELECT count(*) FROM container_secret r JOIN container c ON c.id = r.container_id WHERE c.deleted_at IS NOT NULL) AS left`,
  )
  t.equal(rows[0].left, 0)
})

t.test('a secret can be deleted once its containers are deleted', async t => {
  const [reference] = await refs('a')
  const path = await madePath({ type: 'generic', secret_refs: [reference] })
  const secret = new URL(String(reference?.secret_ref)).pathname
  t.equal((await ask('DELETE', secret)).status, 409)
  await ask('DELETE', path)
  t.equal((await ask('DELETE', secret)).status, 204)
})
