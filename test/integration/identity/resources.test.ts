import t from 'tap'
import { administratorOf } from '../../support/clients/identity-administrator.js'
import { startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)
const { call, tokenOf, projects } = identity
const { as, statusOf, idOf, namesIn } = await administratorOf(identity)

t.test('looking up a name as an id is 404, so that the openstack command then searches by name', async t => {
  for (const plural of [
    'users',
    'projects',
    'roles',
    'domains',
    'groups',
    'services',
    'endpoints',
    'regions',
    'credentials',
  ]) {
    const reply = await as(`GET /v3/${plural}/some%20word%2Fwith%3Fsigns`)
    t.equal(reply.status, 404, plural)
    t.match(reply.body, { error: { code: 404, title: 'Not Found', message: 'Could not find' } })
    const list = await as(
      `GET /v3/${plural}?name=nothing-has-this-name&nonsense=1&type=none&interface=none&parent_region_id=x`,
    )
    t.same(list.list(plural), [], plural)
    t.match(list.body, {
      links: { self: `${identity.url}/v3/${plural}?name=nothing-has-this-name`, next: null, previous: null },
    })
  }
})

t.test('users are created, changed, filtered and deleted', async t => {
  const made = await as('POST /v3/users', {
    user: { name: 'ann', password: 'pw', email: 'a@b.c', enabled: true, options: {} },
  })
  t.equal(made.status, 201)
  const id = made.text('user.id')
  t.match(id, /^[0-9a-f]{32}$/)
  t.match(made.body, {
    user: {
      name: 'ann',
      domain_id: 'default',
      enabled: true,
      email: 'a@b.c',
      password_expires_at: null,
      options: {},
      links: { self: `${identity.url}/v3/users/${id}` },
    },
  })
  t.notMatch(JSON.stringify(made.body), /scrypt|"password"/)
  t.equal(await statusOf('POST /v3/users', { user: { name: 'ann' } }), 409)
  t.equal(await statusOf('POST /v3/users', { user: {} }), 400)
  t.equal(await statusOf('POST /v3/users', { user: { name: ' ' } }), 400)
  t.equal(await statusOf('POST /v3/users', { user: { name: 'x', domain_id: 'nowhere' } }), 404)
  t.equal(await statusOf('POST /v3/users', { user: { name: 'x', default_project_id: 'nowhere' } }), 404)
  t.equal(await statusOf('POST /v3/users', { user: { name: 'x', enabled: 'yes' } }), 400)

  const changed = await as(`PATCH /v3/users/${id}`, {
    user: { description: 'd', default_project_id: projects.demo, email: null },
  })
  t.match(changed.body, { user: { name: 'ann', description: 'd', default_project_id: projects.demo } })
  t.notOk('email' in (changed.body as { user: object }).user, 'null removes an attribute')
  t.equal(await statusOf(`PATCH /v3/users/${id}`, { user: { name: 'admin' } }), 409)
  t.equal(await statusOf(`PATCH /v3/users/${id}`, { user: { domain_id: 'other' } }), 400)
  t.equal(await statusOf(`PATCH /v3/users/${id}`, { user: {} }), 200)
  t.same(await namesIn('GET /v3/users?name=ann&domain_id=default&enabled=true', 'users'), ['ann'])
  t.same(await namesIn('GET /v3/users?name=ann&enabled=False', 'users'), [])
  t.equal(await statusOf(`DELETE /v3/users/${id}`), 204)
  t.equal(await statusOf(`DELETE /v3/users/${id}`), 404)
})

t.test('a request cannot set columns that clients may not set', async t => {
  const body = {
    user: { name: 'sly', password_hash: 'x', id: 'chosen', links: 'l', extra: { a: 1 }, __proto__: { enabled: false } },
  }
  const made = await as('POST /v3/users', body)
  t.equal(made.status, 201)
  t.not(made.text('user.id'), 'chosen')
  const row = await identity.database('local_user').where({ name: 'sly' }).first()
  t.match(row, { password_hash: null, enabled: true })
})

t.test('projects form a tree and carry tags', async t => {
  const made = await as('POST /v3/projects', {
    project: { name: 'wproj', enabled: true, options: {}, tags: ['a', 'b'], color: 'red' },
  })
  t.equal(made.status, 201)
  const id = made.text('project.id')
  t.match(made.body, {
    project: {
      name: 'wproj',
      domain_id: 'default',
      parent_id: 'default',
      is_domain: false,
      description: '',
      tags: ['a', 'b'],
      options: {},
      color: 'red',
    },
  })
  t.equal(await statusOf('POST /v3/projects', { project: { name: 'wproj' } }), 409)
  const child = (await as('POST /v3/projects', { project: { name: 'child', parent_id: id } })).text('project.id')
  t.same(await namesIn(`GET /v3/projects?parent_id=${id}`, 'projects'), ['child'])
  t.same(await namesIn('GET /v3/projects?parent_id=default&name=wproj', 'projects'), ['wproj'])
  t.same(await namesIn('GET /v3/projects?tags=a,b', 'projects'), ['wproj'])
  t.same(await namesIn('GET /v3/projects?tags-any=b,c', 'projects'), ['wproj'])
  t.notOk((await namesIn('GET /v3/projects?not-tags-any=b,c', 'projects')).includes('wproj'))
  t.equal(await statusOf(`DELETE /v3/projects/${id}`), 403, 'a project with a child cannot be deleted')
  t.equal(
    await statusOf(`PATCH /v3/projects/${id}`, { project: { enabled: false } }),
    403,
    'a project with an enabled child cannot be disabled',
  )
  t.equal(await statusOf(`PATCH /v3/projects/${id}`, { project: { parent_id: child } }), 400)
  t.equal(
    await statusOf(`PATCH /v3/projects/${id}`, { project: { parent_id: 'default', tags: [], description: null } }),
    200,
  )
  t.equal(await statusOf('POST /v3/projects', { project: { name: 'x', parent_id: 'nowhere' } }), 404)
  t.equal(await statusOf('POST /v3/projects', { project: { name: 'x', is_domain: true } }), 400)
  for (const gone of [child, id]) t.equal(await statusOf(`DELETE /v3/projects/${gone}`), 204)
})

t.test('a domain has its own names and must be disabled before it is deleted', async t => {
  const made = await as('POST /v3/domains', { domain: { name: 'acme', enabled: true, options: {} } })
  t.equal(made.status, 201)
  const id = made.text('domain.id')
  t.match(made.body, { domain: { name: 'acme', description: '', enabled: true, tags: [], options: {} } })
  t.same(await namesIn('GET /v3/domains?name=Default', 'domains'), ['Default'])
  t.equal(await statusOf('POST /v3/domains', { domain: { name: 'acme' } }), 409)
  t.equal(
    await statusOf('POST /v3/users', { user: { name: 'admin', domain_id: id } }),
    201,
    'names are unique per domain',
  )
  t.equal(await statusOf(`DELETE /v3/domains/${id}`), 403)
  t.equal(await statusOf(`PATCH /v3/domains/${id}`, { domain: { enabled: false } }), 200)
  t.equal(await statusOf(`DELETE /v3/domains/${id}`), 204)
  t.same((await as(`GET /v3/users?domain_id=${id}`)).list('users'), [])
})

t.test('services, endpoints and regions make up the catalogue', async t => {
  const made = await as('POST /v3/services', { service: { type: 'dns', name: 'designate' } })
  t.equal(made.status, 201)
  const service = made.text('service.id')
  t.match(made.body, { service: { type: 'dns', name: 'designate', enabled: true } })
  const endpoint = (fields: object) =>
    as('POST /v3/endpoints', {
      endpoint: { service_id: service, interface: 'public', url: 'http://dns/$(project_id)s', ...fields },
    })
  t.equal((await endpoint({ service_id: 'none' })).status, 400)
  t.equal((await endpoint({ region_id: 'none' })).status, 400)
  t.equal((await endpoint({ interface: 'publicURL' })).status, 400)
  t.equal((await endpoint({ url: 'no url' })).status, 400)
  const first = await endpoint({ region: 'RegionTwo' })
  t.match(first.body, { endpoint: { region: 'RegionTwo', region_id: 'RegionTwo', interface: 'public', enabled: true } })
  t.same(
    (await as(`GET /v3/endpoints?service_id=${service}&interface=public&region_id=RegionTwo`)).list('endpoints').length,
    1,
  )
  t.equal((await as('GET /v3/services?type=load-balancer')).list('services').length, 1)

  const catalogOf = async () =>
    (await identity.login('demo', 'demo')).list('token.catalog').find(entry => entry.type === 'dns')
  t.match(await catalogOf(), { endpoints: [{ url: `http://dns/${projects.demo}` }] })
  t.notMatch(
    (await identity.login('admin', { system: { all: true } }))
      .list('token.catalog')
      .find(entry => entry.type === 'dns'),
    { endpoints: [{}] },
  )
  t.equal(await statusOf(`PATCH /v3/endpoints/${first.text('endpoint.id')}`, { endpoint: { enabled: false } }), 200)
  t.same((await catalogOf())!.endpoints, [])

  t.equal(await statusOf('DELETE /v3/regions/RegionTwo'), 403, 'a region with an endpoint cannot be deleted')
  t.equal(await statusOf(`DELETE /v3/services/${service}`), 204)
  t.equal(
    await statusOf(`GET /v3/endpoints/${first.text('endpoint.id')}`),
    404,
    'deleting a service deletes its endpoints',
  )
  t.equal(await statusOf('PUT /v3/regions/RegionThree', { region: { parent_region_id: 'RegionTwo' } }), 201)
  t.equal(await statusOf('PUT /v3/regions/RegionThree', { region: {} }), 409)
  t.equal(
    await statusOf('PATCH /v3/regions/RegionTwo', { region: { parent_region_id: 'RegionThree' } }),
    400,
    'regions form no cycle',
  )
  t.match((await as('POST /v3/regions', { region: {} })).body, {
    region: { id: /^[0-9a-f]{32}$/, description: '', parent_region_id: null },
  })
  t.equal(await statusOf('DELETE /v3/regions/RegionTwo'), 204)
  t.equal(await statusOf('GET /v3/regions/RegionThree'), 404)
})

t.test('users own their credentials, which are encrypted at rest', async t => {
  const demo = await tokenOf('demo', 'demo')
  const mine = await call('POST /v3/credentials', { token: demo, body: { credential: { type: 'totp', blob: 'seed' } } })
  t.equal(mine.status, 201)
  const id = mine.text('credential.id')
  t.match((await call(`GET /v3/credentials/${id}`, { token: demo })).body, {
    credential: { type: 'totp', blob: 'seed', project_id: null },
  })
  const { rows } = await identity.database.raw('SELECT c::text AS line FROM credential c')
  t.notMatch(rows[0].line, Buffer.from('seed').toString('hex'), 'the secret is encrypted at rest')
  const blob = JSON.stringify({ access: 'AK', secret: 's' })
  const admins = await as('POST /v3/credentials', { credential: { type: 'ec2', blob, project_id: projects.admin } })
  t.equal(admins.text('credential.id').length, 64)
  t.equal(
    await statusOf('POST /v3/credentials', { credential: { type: 'ec2', blob, project_id: projects.admin } }),
    409,
  )
  t.equal(
    await statusOf('POST /v3/credentials', { credential: { type: 'ec2', blob: 'x', project_id: projects.admin } }),
    400,
  )
  t.equal(await statusOf('POST /v3/credentials', { credential: { type: 'ec2', blob } }), 400)
  t.equal(
    (await call('GET /v3/credentials', { token: demo })).list('credentials').length,
    1,
    'a user lists only their own credentials',
  )
  t.equal((await as('GET /v3/credentials')).list('credentials').length, 2)
  t.equal((await as('GET /v3/credentials?type=ec2')).list('credentials').length, 1)
  const foreign = `/v3/credentials/${admins.text('credential.id')}`
  for (const method of ['GET', 'DELETE']) t.equal((await call(`${method} ${foreign}`, { token: demo })).status, 403)
  t.equal((await call(`PATCH ${foreign}`, { token: demo, body: { credential: { blob: 'x' } } })).status, 403)
  const gift = { credential: { type: 't', blob: 'b', user_id: admins.text('credential.user_id') } }
  t.equal((await call('POST /v3/credentials', { token: demo, body: gift })).status, 403)
  t.match((await as(`PATCH /v3/credentials/${id}`, { credential: { blob: 'new' } })).body, {
    credential: { blob: 'new' },
  })
  t.equal((await call(`DELETE /v3/credentials/${id}`, { token: demo })).status, 204)
})

t.test('credentials give no rights beyond those of their user', async t => {
  const demo = await tokenOf('demo', 'demo')
  let keys = 0
  const ec2 = (project_id: string, more: object = {}, access = `key ${++keys}`) => ({
    credential: { type: 'ec2', project_id, blob: JSON.stringify({ access, secret: 's', ...more }) },
  })
  const make = (token: string, body: object) => call('POST /v3/credentials', { token, body })
  const own = await make(demo, ec2(projects.demo!))
  t.equal(own.status, 201)
  const [foreign, unknown] = [await make(demo, ec2(projects.admin)), await make(demo, ec2('0'.repeat(32)))]
  t.equal(foreign.status, 403)
  t.same(
    [unknown.status, unknown.body],
    [foreign.status, foreign.body],
    'the answer does not reveal which projects exist',
  )
  t.equal((await make(demo, { credential: { type: 'cert', blob: 'b', project_id: projects.admin } })).status, 403)

  const one = `PATCH /v3/credentials/${own.text('credential.id')}`
  const change = async (credential: object) => (await call(one, { token: demo, body: { credential } })).status
  t.equal(await change({ project_id: projects.admin }), 403)
  t.equal(await change({ project_id: null }), 400)
  t.equal(await change({ blob: JSON.stringify({ access: 'another', secret: 's' }) }), 200)
  t.equal(await change({ blob: JSON.stringify({ access: 'key 1', secret: 's', app_cred_id: 'x' }) }), 400)
  t.equal(await change({ blob: JSON.stringify({ access: 'key 1', secret: 'fresh' }) }), 200)
  const plain = await make(demo, { credential: { type: 'cert', blob: '{"access":"k","secret":"s"}' } })
  const asEc2 = { credential: { type: 'ec2', project_id: projects.demo } }
  t.equal(
    (await call(`PATCH /v3/credentials/${plain.text('credential.id')}`, { token: demo, body: asEc2 })).status,
    400,
  )

  const robotToken = async (name: string, unrestricted: boolean) => {
    const user = own.text('credential.user_id')
    const made = await call(`POST /v3/users/${user}/application_credentials`, {
      token: demo,
      body: { application_credential: { name, secret: 'robot-pw', unrestricted } },
    })
    const robot = { id: made.text('application_credential.id'), secret: 'robot-pw' }
    const auth = { identity: { methods: ['application_credential'], application_credential: robot } }
    const reply = await call('POST /v3/auth/tokens', { body: { auth } })
    return { id: robot.id, token: reply.headers.get('X-Subject-Token')! }
  }
  const restricted = await robotToken('restricted', false)
  t.equal((await make(restricted.token, ec2(projects.demo!))).status, 403)
  t.equal((await make(restricted.token, { credential: { type: 'totp', blob: 'b' } })).status, 403)
  t.equal((await call(one, { token: restricted.token, body: { credential: { blob: '{}' } } })).status, 403)
  t.equal((await call(`DELETE /v3/credentials/${own.text('credential.id')}`, { token: restricted.token })).status, 403)
  const free = await robotToken('free', true)
  const bound = await make(free.token, ec2(projects.demo!, { app_cred_id: 'forged' }))
  t.match(
    JSON.parse(bound.text('credential.blob')),
    { app_cred_id: free.id },
    'the blob names the application credential',
  )
})

t.test('the calls that Tempest makes get its exact statuses', async t => {
  const project = await as('POST /v3/projects', {
    project: { name: 'tempest-1', description: 'd', domain_id: 'default' },
  })
  const user = await as('POST /v3/users', { user: { name: 'tempest-1', password: 'p', domain_id: 'default' } })
  const [p, u] = [project.text('project.id'), user.text('user.id')]
  const role = await idOf('roles', 'load-balancer_member')
  t.same(
    [
      project.status,
      user.status,
      await statusOf('GET /v3/domains?name=Default'),
      await statusOf(`PUT /v3/projects/${p}/users/${u}/roles/${role}`),
      await statusOf(`GET /v3/role_assignments?user.id=${u}&project.id=${p}`),
      await statusOf(`GET /v3/roles/${role}`),
      await statusOf(`PUT /v3/system/users/${u}/roles/${role}`),
      await statusOf(`DELETE /v3/users/${u}`),
      await statusOf(`DELETE /v3/projects/${p}`),
    ],
    [201, 201, 200, 204, 200, 200, 204, 204, 204],
  )
})
