import t from 'tap'
import { bootstrapIdentity } from '../../../controller/identity/bootstrap.js'
import { administratorOf } from '../../support/clients/identity-administrator.js'
import { bootstrapOptions, passwordLogin, startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)
const { call, login, database, projects } = identity
const { token: admin } = await administratorOf(identity)

t.test('the catalogue lists the four services with three interfaces each', async t => {
  const catalog = (await login('demo', 'demo')).list('token.catalog')
  t.same(
    catalog.map(entry => [entry.type, entry.name]),
    [
      ['identity', 'keystone'],
      ['key-manager', 'barbican'],
      ['load-balancer', 'octavia'],
      ['network', 'neutron'],
    ],
  )
  for (const entry of catalog) {
    const endpoints = entry.endpoints as Record<string, string>[]
    t.same(endpoints.map(endpoint => endpoint.interface).sort(), ['admin', 'internal', 'public'])
    for (const endpoint of endpoints) t.match(endpoint, { region: 'RegionOne', region_id: 'RegionOne', url: /^http:/ })
  }
  t.notOk(
    'catalog' in
      (
        (await call('POST /v3/auth/tokens?nocatalog', { body: passwordLogin('demo', 'demo-pw', 'demo') })).body as {
          token: object
        }
      ).token,
  )
})

t.test('a second bootstrap only updates URLs that changed', async t => {
  const snapshot = async () => {
    const tables = [
      'domain',
      'project',
      'local_user',
      'role',
      'implied_role',
      'assignment',
      'service',
      'region',
      'endpoint',
    ]
    const dumps = await Promise.all(
      tables.map(table => database.raw('SELECT t::text AS line FROM ?? t ORDER BY 1', [table])),
    )
    return dumps.map(({ rows }) => rows.map((row: { line: string }) => row.line))
  }
  const before = await snapshot()
  const same = {
    ...bootstrapOptions,
    adminPassword: 'x',
    endpoints: { ...bootstrapOptions.endpoints, identity: identity.url },
  }
  t.same((await bootstrapIdentity(database, same)).projects, projects)
  t.same(await snapshot(), before)
  const endpoints = {
    ...bootstrapOptions.endpoints,
    network: 'http://127.0.0.1:19696/',
    identity: 'http://127.0.0.1:15000',
  }
  await bootstrapIdentity(database, { ...bootstrapOptions, endpoints })
  const urls: string[] = await database('endpoint').distinct().pluck('url')
  t.same(urls.sort(), [
    'http://127.0.0.1:15000/v3',
    'http://127.0.0.1:19696',
    'http://127.0.0.1:9311',
    'http://127.0.0.1:9876',
  ])
  t.equal((await snapshot())[8]!.length, 12)
})

t.test('bootstrap does not restore a demo project or user that an operator removed', async t => {
  const [demo] = (await call('GET /v3/users?name=demo', { token: admin })).list('users')
  await call(`DELETE /v3/users/${demo!.id}`, { token: admin })
  await call(`DELETE /v3/projects/${projects.demo}`, { token: admin })
  t.equal((await bootstrapIdentity(database, bootstrapOptions)).projects.demo, null)
  t.equal((await call('GET /v3/users?name=demo', { token: admin })).list('users').length, 0)
})
