import t from 'tap'
import { parseConfiguration } from '../../../controller/config/load.js'
import { createCaBackends } from '../../../controller/key-manager/certificate-authorities/backends.js'
import { tokenOf } from '../../support/clients/callers.js'
import type { Json } from '../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'

const DEFAULTS = { secrets: 40, orders: -1, containers: 30, consumers: 30, cas: -1 }
const { ask, store, database, keyring, config, statementsOf, url, stop } = await startTestKeyManager({
  quota: DEFAULTS,
})
t.teardown(stop)
for (const { prepare } of createCaBackends({ database, keyring, config })) await prepare()

const admin = { token: tokenOf('key-manager:service-admin') }
const set = (project: string, project_quotas: unknown) =>
  ask('PUT', `/v1/project-quotas/${encodeURIComponent(project)}`, { project_quotas }, admin)
const overrides = (project: string) => ask('GET', `/v1/project-quotas/${encodeURIComponent(project)}`, undefined, admin)
const effective = async (project: string) =>
  (await ask('GET', '/v1/quotas', undefined, { token: tokenOf('observer', project) })).body

t.test('a project’s own limits override the defaults until deleted', async t => {
  const project = 'effective'
  t.same(await effective(project), { quotas: DEFAULTS })
  t.equal((await overrides(project)).status, 404)
  const put = await set(project, { secrets: 10, containers: 0 })
  t.same([put.status, put.text], [204, ''])
  t.same(await effective(project), { quotas: { ...DEFAULTS, secrets: 10, containers: 0 } })
  const own = { secrets: 10, orders: null, containers: 0, consumers: null, cas: null }
  t.same((await overrides(project)).body, { project_quotas: own })
  await set(project, { secrets: null, orders: -5, containers: null })
  t.same((await overrides(project)).body, { project_quotas: { ...own, orders: -5 } }, 'null keeps the stored limit')
  t.same(await effective(project), { quotas: { ...DEFAULTS, secrets: 10, containers: 0, orders: -5 } })
  t.equal((await ask('DELETE', `/v1/project-quotas/${project}`, undefined, admin)).status, 204)
  t.equal((await ask('DELETE', `/v1/project-quotas/${project}`, undefined, admin)).status, 404)
  t.same(await effective(project), { quotas: DEFAULTS })
  t.equal((await statementsOf(() => effective(project))).length, 1)
})

t.test('PUT validates its body and the project id', async t => {
  const wrong = [
    ...[
      null,
      [],
      'x',
      { secrets: '1' },
      { secrets: 1.5 },
      { secrets: true },
      { secrets: 2 ** 31 },
      { secrets: -(2 ** 40) },
    ],
    ...[{ secrets: [] }, { projects: 1 }, { secrets: 1, x: null }],
  ]
  for (const body of wrong) t.equal((await set('wrong', body)).status, 400, JSON.stringify(body))
  for (const body of [{}, { quotas: {} }, { project_quotas: {}, x: 1 }, [], null]) {
    t.equal((await ask('PUT', '/v1/project-quotas/wrong', body, admin)).status, 400, JSON.stringify(body))
  }
  t.equal((await ask('PUT', '/v1/project-quotas/wrong', undefined, { ...admin, raw: '{}' })).status, 415)
  const headers = { 'Content-Type': 'application/json' }
  t.equal((await ask('PUT', '/v1/project-quotas/wrong', undefined, { ...admin, raw: '', headers })).status, 400)
  t.equal((await overrides('wrong')).status, 404, 'no refused request stores limits')
  t.equal((await set('p'.repeat(256), { secrets: 1 })).status, 400)
  for (const project of ['p'.repeat(255), 'a/b?c', 'ü %']) {
    t.equal((await set(project, { secrets: 2_147_483_647 })).status, 204, project)
    t.match((await overrides(project)).body, { project_quotas: { secrets: 2_147_483_647 } }, project)
  }
  t.equal((await set('empty', {})).status, 204)
  t.match((await overrides('empty')).body, { project_quotas: { secrets: null } })
})

t.test('an administrator lists the limits of all projects, in pages', async t => {
  await database('project_quota').delete()
  for (const project of ['p3', 'p1', 'p2']) await set(project, { secrets: 1 })
  const none = { orders: null, containers: null, consumers: null, cas: null }
  const list = async (query: string) => (await ask('GET', `/v1/project-quotas?${query}`, undefined, admin)).body
  t.same(await list(''), {
    project_quotas: ['p3', 'p1', 'p2'].map(project_id => ({ project_id, project_quotas: { secrets: 1, ...none } })),
    total: 3,
  })
  t.same(await list('limit=1&offset=1'), {
    project_quotas: [{ project_id: 'p1', project_quotas: { secrets: 1, ...none } }],
    total: 3,
    previous: `${url}/v1/project-quotas?limit=1&offset=0`,
    next: `${url}/v1/project-quotas?limit=1&offset=2`,
  })
  t.same(await list('offset=3'), { project_quotas: [], total: 3 })
  t.equal((await statementsOf(() => list(''))).length, 1)
})

/** Prepares a project. @returns a function that creates one more object of the kind */
const CREATES: Record<
  string,
  (project: string) => Promise<(number: number) => Promise<{ status: number; body: Json }>>
> = {
  secrets: async project => n => ask('POST', '/v1/secrets', { name: `${n}` }, { token: tokenOf('creator', project) }),
  containers: async project => () =>
    ask('POST', '/v1/containers', { type: 'generic' }, { token: tokenOf('creator', project) }),
  'consumers of containers': async project => {
    const token = tokenOf('creator', project)
    const { body } = await ask('POST', '/v1/containers', { type: 'generic' }, { token })
    const path = `${new URL(String(body.container_ref)).pathname}/consumers`
    return n => ask('POST', path, { name: 'c', URL: `${n}` }, { token })
  },
  'consumers of secrets': async project => {
    const token = tokenOf('creator', project)
    const path = `/v1/secrets/${await store({}, token)}/consumers`
    return n => ask('POST', path, { service: 's', resource_type: 't', resource_id: `${n}` }, { token })
  },
  orders: async project => n => {
    const meta = { name: `${n}`, algorithm: 'aes', bit_length: 256 }
    return ask('POST', '/v1/orders', { type: 'key', meta }, { token: tokenOf('creator', project) })
  },
  cas: async project => {
    const [root] = (await ask('GET', '/v1/cas', undefined, { token: tokenOf('reader') })).body.cas as string[]
    const token = tokenOf('member', project)
    return n => ask('POST', '/v1/cas', { name: `${n}`, subject_dn: `CN=${n}`, parent_ca_ref: root }, { token })
  },
}

for (const [kind, prepare] of Object.entries(CREATES)) {
  t.test(`${kind}: thirty concurrent requests create exactly ten under a limit of ten`, async t => {
    const project = `project of ${kind}`
    const create = await prepare(project)
    const name = kind.split(' ')[0] ?? ''
    await set(project, { [name]: 10 })
    const answers = await Promise.all(Array.from({ length: 30 }, (_, n) => create(n)))
    const made = answers.filter(({ status }) => status < 300)
    t.equal(made.length, 10)
    const refused = answers.filter(({ status }) => status === 403)
    t.equal(refused.length, 20, JSON.stringify(answers.map(({ status }) => status)))
    t.match(refused[0]?.body, { code: 403, title: 'Forbidden', description: new RegExp(`quota.*${name}`) })
    t.equal((await create(99)).status, 403)
    await set(project, { [name]: 11 })
    t.ok((await create(100)).status < 300, 'a higher limit leaves room')
    await set(project, { [name]: 5 })
    t.equal((await create(101)).status, 403, 'the limit is below the current count')
    await set(project, { [name]: 0 })
    t.equal((await create(102)).status, 403, 'the limit is zero')
    await set(project, { [name]: -1 })
    t.ok((await create(103)).status < 300, 'there is no limit')
  })
}

t.test('deleted and expired objects free their quota', async t => {
  const project = 'room'
  const token = tokenOf('creator', project)
  await set(project, { secrets: 1, containers: 1, consumers: 1 })
  const secret = await store({}, token)
  const make = () => ask('POST', '/v1/containers', { type: 'generic' }, { token })
  const container = new URL(String((await make()).body.container_ref)).pathname
  const consume = (name: string) => ask('POST', `${container}/consumers`, { name, URL: 'u' }, { token })
  t.equal((await consume('a')).status, 200)
  t.equal((await consume('a')).status, 403, 'the quota is checked before an existing consumer is found')
  t.equal((await ask('DELETE', `${container}/consumers`, { name: 'a', URL: 'u' }, { token })).status, 200)
  t.equal((await consume('b')).status, 200)
  t.equal((await make()).status, 403)
  t.equal((await ask('DELETE', container, undefined, { token })).status, 204)
  t.equal((await make()).status, 201)
  t.equal((await ask('POST', '/v1/secrets', {}, { token })).status, 403)
  await database('secret')
    .where({ id: secret })
    .update({ expiration: new Date(0) })
  t.equal((await ask('POST', '/v1/secrets', {}, { token })).status, 201, 'an expired secret does not count')
})

t.test('consumers count for the project that registers them, on containers and secrets separately', async t => {
  const token = tokenOf('creator', 'owner')
  const { body } = await ask('POST', '/v1/containers', { type: 'generic' }, { token })
  const path = new URL(String(body.container_ref)).pathname
  await ask('PUT', `${path}/acl`, { read: { users: ['user-guest'] } }, { token })
  await set('owner', { consumers: 1 })
  await set('guests', { consumers: 1 })
  const register = (name: string, by: string) => ask('POST', `${path}/consumers`, { name, URL: 'u' }, { token: by })
  const guest = tokenOf('guest', 'guests')
  t.same(
    [
      (await register('a', guest)).status,
      (await register('b', guest)).status,
      (await register('c', token)).status,
      (await register('d', token)).status,
    ],
    [200, 403, 200, 403],
  )
  const secret = await store({}, token)
  const consumer = { service: 's', resource_type: 't', resource_id: 'r' }
  t.equal((await ask('POST', `/v1/secrets/${secret}/consumers`, consumer, { token })).status, 200)
})

t.test('the default quota applies to projects without limits of their own', async t => {
  const { ask, stop } = await startTestKeyManager({ quota: { secrets: 1, containers: 0 } })
  t.teardown(stop)
  const add = async (kind: string, body: object, project?: string) =>
    (await ask('POST', `/v1/${kind}`, body, { token: tokenOf('creator', project) })).status
  t.same([await add('secrets', {}), await add('secrets', {}), await add('secrets', {}, 'other')], [201, 403, 201])
  t.equal(await add('containers', { type: 'generic' }), 403)
})

t.test('the configuration accepts Barbican’s names of the quota group and options', async t => {
  const quotaIn = (text: string) => parseConfiguration(text, {}).key_manager.quota
  const expected = { secrets: 5, orders: -1, containers: 6, consumers: -1, cas: -1 }
  t.same(quotaIn('key_manager: {quota: {secrets: 5, containers: 6}}'), expected)
  t.same(quotaIn('key_manager: {quotas: {secrets: 5, containers: 6}}'), expected)
  t.same(quotaIn('key_manager: {quota: {quota_secrets: 5, containers: 6}}'), expected)
  t.same(quotaIn('key_manager: {quotas: {quota_secrets: 5, quota_containers: 6}}'), expected)
  const fromEnvironment = { KRATER_KEY_MANAGER_QUOTA_SECRETS: '7' }
  t.equal(parseConfiguration('key_manager: {quotas: {secrets: 5}}', fromEnvironment).key_manager.quota.secrets, 7)
  t.throws(() => quotaIn('key_manager: {quota: {secrets: 5}, quotas: {secrets: 5}}'), {
    message: /key_manager.quota and key_manager.quotas are names of the same group/,
  })
  t.throws(() => quotaIn('key_manager: {quota: {secrets: 5, quota_secrets: 5}}'), { message: /has an option twice/ })
  t.throws(() => quotaIn('key_manager: {quotas: {secretz: 5}}'), {
    message: /unknown setting key_manager.quota.secretz/,
  })
  t.throws(() => quotaIn('key_manager: {quotas: 5}'), { message: /key_manager/ })
})
