import { randomUUID } from 'node:crypto'
import t from 'tap'
import { CANARY } from '../../../support/canary.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'

const api = await startTestKeyManager()
const { ask, store, database } = api
t.teardown(api.stop)

const IMAGE = { service: 'image', resource_type: 'image', resource_id: 'i1' }
const OTHER = { service: 'compute', resource_type: 'server', resource_id: 's1' }
const member = tokenOf('member')
const stranger = tokenOf('member', FOREIGN)
/** A user of another project whom the ACL lets read. */
const READER = tokenOf('creator', FOREIGN)
const shared = async () => {
  const id = await store()
  await ask('PUT', `/v1/secrets/${id}/acl`, { read: { users: ['user-creator'] } })
  return id
}
const register = (id: string, body: unknown, token = member) =>
  ask('POST', `/v1/secrets/${id}/consumers`, body, { token })
const remove = (id: string, body: unknown, token = member) =>
  ask('DELETE', `/v1/secrets/${id}/consumers`, body, { token })
const listed = async (id: string, query = '') => (await ask('GET', `/v1/secrets/${id}/consumers${query}`)).body
const destroy = (id: string, query: string, version: string) =>
  ask('DELETE', `/v1/secrets/${id}${query}`, undefined, {
    headers: { 'OpenStack-API-Version': `key-manager ${version}` },
  })
const container = (secret: string, token = member) =>
  ask(
    'POST',
    '/v1/containers',
    { type: 'generic', secret_refs: [{ name: 'x', secret_ref: `${api.url}/v1/secrets/${secret}` }] },
    { token },
  )

t.test('consumers register and deregister; registering twice changes nothing', async t => {
  const id = await store()
  const before = (await ask('GET', `/v1/secrets/${id}`)).body
  const made = await register(id, { ...IMAGE, more: 1 })
  t.equal(made.status, 200)
  t.match(made.body, { secret_ref: before.secret_ref, consumers: [IMAGE], content_types: { default: 'text/plain' } })
  t.ok(String(made.body.updated) > String(before.updated), 'the secret’s "updated" advances')
  const again = await register(id, IMAGE)
  t.strictSame(again.body, made.body, 'registering again changes nothing')
  t.equal(again.status, 200)
  t.equal(again.headers.get('location'), made.headers.get('location'))
  await register(id, OTHER)
  const { consumers, total } = await listed(id)
  t.equal(total, 2)
  const times = { created: /^\d{4}-/, updated: /^\d{4}-/, status: 'ACTIVE' }
  t.match(consumers, [
    { ...times, ...IMAGE },
    { ...times, ...OTHER },
  ])
  const one = await ask('GET', String(made.headers.get('location')).slice(api.url.length))
  t.strictSame(one.body, Object(consumers)[0])
  const gone = await remove(id, IMAGE)
  t.equal(gone.status, 200)
  t.match(gone.body, { secret_ref: before.secret_ref })
  t.strictSame(gone.body.consumers, [OTHER])
  t.match(await remove(id, IMAGE), { status: 404, body: { code: 404 } })
})

t.test('the list of consumers pages', async t => {
  const id = await store()
  for (let n = 0; n < 3; n++) await register(id, { ...IMAGE, resource_id: `r${n}` })
  const page = await listed(id, '?limit=1&offset=1&x=y')
  const url = `${api.url}/v1/secrets/${id}/consumers`
  t.match(page, {
    consumers: [{ resource_id: 'r1' }],
    total: 3,
    previous: `${url}?limit=1&offset=0&x=y`,
    next: `${url}?limit=1&offset=2&x=y`,
  })
  t.strictSame(await listed(await store()), { consumers: [], total: 0 })
})

t.test('invalid bodies and paths are refused', async t => {
  const id = await store()
  for (const body of [
    {},
    [],
    { service: 'a', resource_type: 'b' },
    { ...IMAGE, service: '' },
    { ...IMAGE, service: '   ' },
    { ...IMAGE, service: 'x'.repeat(256) },
    { ...IMAGE, resource_type: null },
    { ...IMAGE, resource_id: 'x'.repeat(37) },
    { ...IMAGE, resource_id: 5 },
    { ...IMAGE, resource_id: 'a\u0000' },
  ]) {
    t.equal((await register(id, body)).status, 400, JSON.stringify(body).slice(0, 60))
    t.equal((await remove(id, body)).status, 400)
  }
  const wide = { service: '😀'.repeat(127), resource_type: '𝔸'.repeat(127), resource_id: '😀'.repeat(18) }
  t.equal((await register(id, wide)).status, 200, 'the longest values')
  t.equal((await remove(id, wide)).status, 200)
  t.equal((await ask('POST', `/v1/secrets/${id}/consumers`, undefined, { raw: '{}' })).status, 415)
  for (const path of [randomUUID(), 'x', `${randomUUID()}/x`]) {
    t.equal((await ask('GET', `/v1/secrets/${id}/consumers/${path}`)).status, 404, path)
  }
  t.equal((await register(randomUUID(), IMAGE)).status, 404)
})

t.test('other projects register consumers as the ACL allows and remove only their own', async t => {
  const id = await shared()
  t.equal((await register(id, IMAGE, stranger)).status, 403)
  t.equal((await ask('GET', `/v1/secrets/${id}/consumers`, undefined, { token: stranger })).status, 403)
  t.equal((await register(id, OTHER, READER)).status, 200, 'a user on the ACL may register')
  await register(id, IMAGE)
  t.equal((await remove(id, IMAGE, READER)).status, 403, 'a project may not remove another project’s consumer')
  t.equal((await remove(id, OTHER, READER)).status, 200)
  await register(id, OTHER, READER)
  t.equal((await remove(id, OTHER)).status, 200, 'the secret’s own project may remove any')
  await register(id, OTHER, READER)
  await register(id, OTHER)
  const [{ project_id: project }] = await database('secret_consumer').where({ secret_id: id, service: 'compute' })
  t.equal(project, FOREIGN, 'a consumer belongs to the project that registered it first')
})

t.test('from microversion 1.2, deleting a secret with consumers needs force', async t => {
  const used = async () => {
    const id = await store()
    await register(id, IMAGE)
    return id
  }
  for (const [version, query, status] of [
    ['1.0', '', 204],
    ['1.1', '', 204],
    ['1.1', '?force=nonsense', 204],
    ['1.2', '', 400],
    ['1.2', '?force=false', 400],
    ['1.2', '?force=0', 400],
    ['1.2', '?force=nonsense', 400],
    ['1.2', '?force=', 400],
    ['1.2', '?force=true', 204],
    ['latest', '?force=Yes', 204],
    ['1.2', '?force=ON', 204],
  ] as const) {
    const id = await used()
    t.equal((await destroy(id, query, version)).status, status, `${version} ${query}`)
    t.equal((await ask('GET', `/v1/secrets/${id}`)).status, status === 204 ? 404 : 200)
    const left = await database('secret_consumer').where({ secret_id: id })
    t.equal(left.length, status === 204 ? 0 : 1)
  }
  t.equal((await destroy(await store(), '', '1.2')).status, 204, 'a secret without consumers needs no force')
  t.equal((await destroy(await store(), '?force=nonsense', '1.2')).status, 400)
})

t.test('a secret in a container cannot be deleted, even with force', async t => {
  const id = await store()
  const made = await container(id)
  t.equal(made.status, 201)
  for (const query of ['', '?force=true']) {
    const refused = await destroy(id, query, '1.2')
    t.match(refused, { status: 409, body: { code: 409, title: 'Conflict' } }, query)
  }
  t.equal((await ask('GET', `/v1/secrets/${id}/payload`)).text, CANARY, 'the payload is unchanged')
  const refusals = await database('audit_record').where({ target_id: id, action: 'secret.delete' })
  t.match(refusals, [{ outcome: 'failure' }, { outcome: 'failure' }])
  await ask('DELETE', new URL(String(made.body.container_ref)).pathname)
  t.equal((await destroy(id, '', '1.0')).status, 204, 'the secret can be deleted once the container is deleted')
})

t.test('deleting a secret while it is used leaves no dangling reference', async t => {
  for (let round = 0; round < 12; round++) {
    const id = await store()
    const [gone, made, used] = await Promise.all([destroy(id, '', '1.2'), container(id), register(id, IMAGE)])
    const [row] = await database('secret').where({ id })
    const references = await database('container_secret').where({ secret_id: id })
    const consumers = await database('secret_consumer').where({ secret_id: id })
    const isGone = row.deleted_at !== null
    t.equal(gone.status === 204, isGone)
    t.ok([204, 400, 409].includes(gone.status), `${gone.status}`)
    t.equal(made.status, isGone ? 404 : 201)
    t.ok(isGone ? [200, 404].includes(used.status) : used.status === 200, `${used.status}`)
    t.equal(references.length, isGone ? 0 : 1, 'no container refers to a deleted secret')
    t.equal(consumers.length, isGone ? 0 : 1)
  }
})

t.test('the consumer quota counts what a project registers', async t => {
  const first = await shared()
  const second = await store()
  await database('secret_consumer').delete()
  await database('project_quota').insert({ project_id: OWN, consumers: 2 })
  t.equal((await register(first, IMAGE)).status, 200)
  t.equal((await register(first, OTHER, READER)).status, 200, 'the consumer counts for the other project')
  t.equal((await register(second, IMAGE)).status, 200)
  t.match(await register(second, OTHER), { status: 403, body: { code: 403 } })
  t.equal((await register(second, IMAGE)).status, 403, 'the quota applies even to an existing consumer')
  await remove(second, IMAGE)
  const bodies = Array.from({ length: 6 }, (_, n) => ({ ...IMAGE, resource_id: `q${n}` }))
  const replies = await Promise.all(bodies.map(body => register(second, body)))
  t.strictSame(
    replies.map(({ status }) => status).sort(),
    [200, 403, 403, 403, 403, 403],
    'the quota is exact under concurrency',
  )
  await database('project_quota').delete()
})

t.test('delete_referenced_secrets removes references together with their secret', async t => {
  const relaxed = await startTestKeyManager({ delete_referenced_secrets: true })
  t.teardown(relaxed.stop)
  const [kept, lost] = [await relaxed.store(), await relaxed.store()]
  const references = [kept, lost].map((id, n) => ({ name: `n${n}`, secret_ref: `${relaxed.url}/v1/secrets/${id}` }))
  const made = await relaxed.ask('POST', '/v1/containers', { type: 'generic', secret_refs: references })
  t.equal((await relaxed.ask('DELETE', `/v1/secrets/${lost}`)).status, 204)
  const shown = await relaxed.ask('GET', new URL(String(made.body.container_ref)).pathname)
  t.strictSame(shown.body.secret_refs, references.slice(0, 1))
})

t.test('user metadata', async t => {
  const id = await store()
  const path = `/v1/secrets/${id}/metadata`
  const all = async () => (await ask('GET', path)).body
  t.strictSame(await all(), { metadata: {} })
  await t.test('PUT replaces all metadata', async t => {
    const put = await ask('PUT', path, { metadata: { Color: 'Blue', 'a-b_1': '', __proto__x: 'y' } })
    t.match(put, { status: 201, body: { metadata_ref: `${api.url}${path}` } })
    t.strictSame(await all(), { metadata: { color: 'Blue', 'a-b_1': '', __proto__x: 'y' } })
    t.equal((await ask('PUT', path, { metadata: { only: 'this' } })).status, 201)
    t.strictSame(await all(), { metadata: { only: 'this' } })
    for (const body of [
      {},
      { metadata: null },
      { metadata: [] },
      { metadata: 'x' },
      { metadata: { k: 1 } },
      { metadata: { k: null } },
      { metadata: { 'k k': 'v' } },
      { metadata: { ü: 'v' } },
      { metadata: { '': 'v' } },
      { metadata: { k: 'v'.repeat(256) } },
      { metadata: { ['k'.repeat(256)]: 'v' } },
      { metadata: { k: 'a\u0000b' } },
    ]) {
      t.equal((await ask('PUT', path, body)).status, 400, JSON.stringify(body).slice(0, 60))
    }
    t.strictSame(await all(), { metadata: { only: 'this' } })
    const raw = '{"metadata":{"__proto__":"p","constructor":"c"}}'
    await ask('PUT', path, undefined, { raw, headers: { 'Content-Type': 'application/json' } })
    t.equal((await ask('GET', path)).text.replaceAll(' ', ''), raw, 'names that JavaScript treats specially are kept')
    t.match((await ask('GET', `${path}/__proto__`)).body, { value: 'p' })
    t.equal((await ask('GET', `${path}/toString`)).status, 404)
    await ask('PUT', path, { metadata: {} })
    t.strictSame(await all(), { metadata: {} })
  })
  await t.test('single keys are created, changed and deleted', async t => {
    const made = await ask('POST', path, { key: 'K2', value: 'v' })
    t.equal(made.status, 201)
    t.strictSame(made.body, { key: 'k2', value: 'v' })
    t.equal(made.headers.get('location'), `${api.url}${path}/k2`)
    t.match(await ask('POST', path, { key: 'k2', value: 'w' }), { status: 409, body: { code: 409 } })
    t.strictSame((await ask('GET', `${path}/k2`)).body, { key: 'k2', value: 'v' })
    const changed = await ask('PUT', `${path}/k2`, { key: 'k2', value: 'w' })
    t.equal(changed.status, 200)
    t.strictSame(changed.body, { key: 'k2', value: 'w' })
    t.equal(
      (await ask('PUT', `${path}/k2`, { key: 'k3', value: 'w' })).status,
      409,
      'the key in the body differs from the key in the path',
    )
    t.equal((await ask('PUT', `${path}/k3`, { key: 'k3', value: 'w' })).status, 404)
    t.equal((await ask('GET', `${path}/k3`)).status, 404)
    for (const body of [{}, { key: 'a' }, { value: 'a' }, { key: 'a', value: 1 }, { key: 'a', value: 'b', more: 1 }]) {
      t.equal((await ask('POST', path, body)).status, 400, JSON.stringify(body))
    }
    t.strictSame(await all(), { metadata: { k2: 'w' } })
    for (const key of ['k2', 'k2', 'never', '%25%00'.slice(0, 3)]) {
      t.equal((await ask('DELETE', `${path}/${key}`)).status, 204, `${key}, whether it exists or not`)
    }
    t.strictSame(await all(), { metadata: {} })
    for (const [method, below] of [
      ['POST', '/k'],
      ['PATCH', '/k'],
      ['DELETE', ''],
    ] as const) {
      t.equal((await ask(method, path + below, {})).status, 405, method + below)
    }
  })
  await t.test('adding keys one by one has the same size limit as one request', async t => {
    const full = `/v1/secrets/${await store()}/metadata`
    const many = Object.fromEntries(Array.from({ length: 93 }, (_, n) => [`key-${n}`, 'v'.repeat(250)]))
    t.equal((await ask('PUT', full, { metadata: many })).status, 201)
    const statuses: number[] = []
    for (let n = 0; n < 6; n++)
      statuses.push((await ask('POST', full, { key: `more-${n}`, value: 'v'.repeat(250) })).status)
    t.equal(statuses[0], 201)
    t.equal(statuses.at(-1), 400)
    t.equal(
      (await ask('PUT', `${full}/key-1`, { key: 'key-1', value: 'w' })).status,
      200,
      'an existing key can be changed',
    )
    t.equal((await ask('DELETE', `${full}/key-2`)).status, 204)
  })

  await t.test('exactly one of several concurrent POSTs of a key succeeds', async t => {
    const values = ['a', 'b', 'c', 'd', 'e']
    const replies = await Promise.all(values.map(value => ask('POST', path, { key: 'race', value })))
    t.strictSame(replies.map(({ status }) => status).sort(), [201, 409, 409, 409, 409])
    const keys = await Promise.all(values.map(key => ask('POST', path, { key, value: 'x' })))
    t.ok(keys.every(({ status }) => status === 201))
    t.equal(Object.keys(Object((await all()).metadata)).length, 6, 'no key is lost')
  })
  await t.test('only the project’s roles read and change metadata', async t => {
    const token = stranger
    t.equal((await ask('GET', path, undefined, { token })).status, 403)
    t.equal((await ask('PUT', path, { metadata: {} }, { token })).status, 403)
    t.equal((await ask('POST', path, { key: 'k', value: 'v' }, { token: tokenOf('observer') })).status, 403)
    t.equal((await ask('GET', path, undefined, { token: tokenOf('observer') })).status, 200)
  })
})
