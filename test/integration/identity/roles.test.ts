import t from 'tap'
import { databaseTokenValidator } from '../../../controller/identity/tokens/validator.js'
import { administratorOf } from '../../support/clients/identity-administrator.js'
import { startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)
const { call, tokenOf, projects, database } = identity
const { token, as, statusOf, idOf, namesIn, makeUser } = await administratorOf(identity)

t.test('the built-in roles exist and are immutable', async t => {
  const names = (await as('GET /v3/roles')).list('roles').map(role => role.name)
  for (const name of [
    'admin',
    'manager',
    'member',
    'reader',
    'service',
    'creator',
    'observer',
    'audit',
    'key-manager:service-admin',
    'load-balancer_admin',
    'load-balancer_member',
    'load-balancer_observer',
    'load-balancer_global_observer',
    'load-balancer_quota_admin',
  ]) {
    t.ok(names.includes(name), name)
  }
  const member = await idOf('roles', 'member')
  t.match((await as(`GET /v3/roles/${member}`)).body, {
    role: { name: 'member', domain_id: null, options: { immutable: true } },
  })
  t.equal(await statusOf(`DELETE /v3/roles/${member}`), 403)
  t.equal(await statusOf(`PATCH /v3/roles/${member}`, { role: { name: 'x' } }), 403)
  t.equal(
    await statusOf(`PATCH /v3/roles/${member}`, { role: { description: 'x', options: { immutable: false } } }),
    403,
  )

  const own = (await as('POST /v3/roles', { role: { name: 'own', options: { immutable: true } } })).text('role.id')
  t.equal(await statusOf('POST /v3/roles', { role: { name: 'own' } }), 409)
  t.equal(await statusOf(`PATCH /v3/roles/${own}`, { role: { options: { immutable: false } } }), 200)
  t.equal(await statusOf(`PATCH /v3/roles/${own}`, { role: { name: 'owned' } }), 200)
  t.equal(await statusOf(`DELETE /v3/roles/${own}`), 204)
})

t.test('implied roles take effect in existing tokens', async t => {
  const [admin, member, reader] = [
    await idOf('roles', 'admin'),
    await idOf('roles', 'member'),
    await idOf('roles', 'reader'),
  ]
  const inferences = (await as('GET /v3/role_inferences')).list('role_inferences') as {
    prior_role: { name: string }
    implies: { name: string }[]
  }[]
  t.same(inferences.map(({ prior_role, implies }) => [prior_role.name, ...implies.map(role => role.name)]).sort(), [
    ['admin', 'manager'],
    ['manager', 'member'],
    ['member', 'reader'],
  ])
  t.match((await as(`GET /v3/roles/${member}/implies`)).body, {
    role_inference: { prior_role: { name: 'member' }, implies: [{ name: 'reader' }] },
  })
  const creator = await idOf('roles', 'creator')
  const one = `/v3/roles/${reader}/implies/${creator}`
  t.equal(await statusOf(`HEAD ${one}`), 404)
  t.equal(await statusOf(`PUT ${one}`), 201)
  t.equal(await statusOf(`PUT ${one}`), 201, 'the request can be repeated')
  t.equal(await statusOf(`HEAD ${one}`), 204)
  t.equal(await statusOf(`GET ${one}`), 200)
  const demo = await tokenOf('demo', 'demo')
  const carried = async () => (await databaseTokenValidator(identity.database)(demo))!.roles
  t.ok((await carried()).includes('creator'))
  await as(`PUT /v3/roles/${reader}/implies/${await idOf('roles', 'audit')}`)
  t.ok((await carried()).includes('audit'), 'existing tokens gain the role')
  t.equal(await statusOf(`DELETE /v3/roles/${reader}/implies/${await idOf('roles', 'audit')}`), 204)
  t.notOk((await carried()).includes('audit'), 'existing tokens lose the role')
  t.equal(await statusOf(`DELETE ${one}`), 204)
  t.equal(await statusOf(`DELETE ${one}`), 404)
  t.equal(await statusOf(`PUT /v3/roles/${reader}/implies/${admin}`), 403, 'no role may imply admin')
  t.equal(await statusOf(`PUT /v3/roles/${reader}/implies/${reader}`), 400)
  t.equal(await statusOf(`PUT /v3/roles/${reader}/implies/${member}`), 201, 'a cycle does no harm')
  t.equal((await identity.login('admin', 'admin')).list('token.roles').length, 4)
  t.equal(await statusOf(`DELETE /v3/roles/${reader}/implies/${member}`), 204)
})

t.test('roles are granted on projects, domains and the system, to users and groups', async t => {
  const role = await idOf('roles', 'creator')
  const user = (await as('POST /v3/users', { user: { name: 'gus' } })).text('user.id')
  const group = (await as('POST /v3/groups', { group: { name: 'gang' } })).text('group.id')
  for (const target of [`projects/${projects.demo}`, 'domains/default', 'system']) {
    for (const actor of [`users/${user}`, `groups/${group}`]) {
      const all = `/v3/${target}/${actor}/roles`
      const what = `${target} ${actor}`
      t.equal(await statusOf(`HEAD ${all}/${role}`), 404, what)
      t.equal(await statusOf(`PUT ${all}/${role}`), 204, what)
      t.equal(await statusOf(`PUT ${all}/${role}`), 204, `${what}: the request can be repeated`)
      t.equal(await statusOf(`HEAD ${all}/${role}`), 204, what)
      t.same(await namesIn(`GET ${all}`, 'roles'), ['creator'], what)
      t.equal(await statusOf(`PUT ${all}/nothing`), 404, what)
      t.equal(await statusOf(`DELETE ${all}/${role}`), 204, what)
      t.equal(await statusOf(`DELETE ${all}/${role}`), 404, what)
    }
    t.equal(await statusOf(`PUT /v3/${target}/users/nobody/roles/${role}`), 404)
    t.equal(await statusOf(`GET /v3/${target}/groups/nobody/roles`), 404)
  }
  t.equal(await statusOf(`PUT /v3/projects/nowhere/users/${user}/roles/${role}`), 404)
})

t.test('role assignments are filtered, and effective ones include groups and implied roles', async t => {
  const user = (await as('POST /v3/users', { user: { name: 'rita' } })).text('user.id')
  const group = (await as('POST /v3/groups', { group: { name: 'readers' } })).text('group.id')
  const [member, reader] = [await idOf('roles', 'member'), await idOf('roles', 'reader')]
  await as(`PUT /v3/groups/${group}/users/${user}`)
  await as(`PUT /v3/projects/${projects.demo}/users/${user}/roles/${member}`)
  await as(`PUT /v3/system/groups/${group}/roles/${reader}`)
  const list = async (query: string) => (await as(`GET /v3/role_assignments?${query}`)).list('role_assignments')

  t.match(await list(`user.id=${user}&project.id=ignored`), [
    {
      role: { id: member },
      user: { id: user },
      scope: { project: { id: projects.demo } },
      links: { assignment: `${identity.url}/v3/projects/${projects.demo}/users/${user}/roles/${member}` },
    },
  ])
  t.match(await list(`user.id=${user}&include_names=True`), [
    {
      role: { name: 'member' },
      user: { name: 'rita', domain: { id: 'default', name: 'Default' } },
      scope: { project: { name: 'demo', domain: { name: 'Default' } } },
    },
  ])
  t.match(await list(`group.id=${group}&include_names`), [
    { group: { name: 'readers' }, scope: { system: { all: true } } },
  ])
  const effective = await list(`user.id=${user}&effective`)
  t.equal(effective.length, 3, 'member, reader implied by member, and reader from the group')
  t.equal((await list(`user.id=${user}&effective&role.id=${reader}`)).length, 2)
  t.equal((await list(`user.id=${user}&effective&scope.system=all`)).length, 1)
  t.equal((await list(`scope.project.id=${projects.demo}&user.id=${user}`)).length, 1)
  t.equal((await list(`scope.domain.id=default&user.id=${user}`)).length, 0)
  const child = (await as('POST /v3/projects', { project: { name: 'sub', parent_id: projects.demo } })).text(
    'project.id',
  )
  await as(`PUT /v3/projects/${child}/users/${user}/roles/${reader}`)
  t.equal((await list(`scope.project.id=${projects.demo}&user.id=${user}&include_subtree=True`)).length, 2)
  t.equal(await statusOf(`GET /v3/role_assignments?effective&group.id=${group}`), 400)
  t.equal(await statusOf(`DELETE /v3/projects/${child}`), 204)
})

t.test('members of a group have its roles', async t => {
  const group = (await as('POST /v3/groups', { group: { name: 'crew', description: 'd' } })).text('group.id')
  const user = (await as('POST /v3/users', { user: { name: 'zoe' } })).text('user.id')
  const one = `/v3/groups/${group}/users/${user}`
  t.equal(await statusOf(`HEAD ${one}`), 404)
  t.equal(await statusOf(`PUT ${one}`), 204)
  t.equal(await statusOf(`HEAD ${one}`), 204)
  t.same(await namesIn(`GET /v3/groups/${group}/users`, 'users'), ['zoe'])
  t.same(await namesIn(`GET /v3/users/${user}/groups`, 'groups'), ['crew'])
  const member = await idOf('roles', 'member')
  await as(`PUT /v3/projects/${projects.demo}/groups/${group}/roles/${member}`)
  t.same(await namesIn(`GET /v3/users/${user}/projects`, 'projects'), ['demo'])
  t.equal(await statusOf(`DELETE ${one}`), 204)
  t.equal(await statusOf(`DELETE ${one}`), 404)
  t.equal(await statusOf(`PUT /v3/groups/${group}/users/nobody`), 404)
  t.equal(await statusOf('POST /v3/groups', { group: { name: 'crew' } }), 409)
  t.equal(await statusOf(`PATCH /v3/groups/${group}`, { group: { description: 'e' } }), 200)
  t.equal(await statusOf(`DELETE /v3/groups/${group}`), 204)
})

t.test('a user lists the projects, domains and catalogue of their token', async t => {
  const demo = await tokenOf('demo', { unscoped: {} })
  const own = async (what: string, bearer: string) => call(`GET /v3/auth/${what}`, { token: bearer })
  t.same(
    (await own('projects', demo)).list('projects').map(project => project.name),
    ['demo'],
  )
  t.equal(await statusOf(`PATCH /v3/projects/${projects.demo}`, { project: { enabled: false } }), 200)
  t.same((await own('projects', demo)).list('projects'), [], 'a disabled project is not listed')
  t.equal(await statusOf(`PATCH /v3/projects/${projects.demo}`, { project: { enabled: true } }), 200)
  t.same((await own('domains', demo)).list('domains'), [])
  t.same((await own('system', demo)).list('system'), [])
  t.match((await own('system', token)).list('system'), [{ all: true }])
  t.equal((await own('catalog', demo)).status, 403)
  t.equal((await own('catalog', token)).list('catalog').length, 4)
})

t.test('losing a role of a domain, or what it implies, ends the tokens that rest on it', async t => {
  const user = await makeUser('rower')
  const make = async (name: string, domain_id: string | null) =>
    (await as('POST /v3/roles', { role: { name, domain_id } })).text('role.id')
  const [local, other, plain] = [await make('rower', 'default'), await make('cox', 'default'), await make('oar', null)]
  const grant = `/v3/projects/${projects.demo}/users/${user}/roles`
  const change = async (operation: string) => t.ok((await statusOf(operation)) < 300, operation)
  const validate = databaseTokenValidator(database)
  const roles = async (token: string) => (await validate(token))?.roles.toSorted()
  await change(`PUT ${grant}/${local}`)
  const held = await tokenOf('rower', 'demo')
  const before = await roles(held)
  await change(`PUT /v3/roles/${local}/implies/${other}`)
  await change(`PUT /v3/roles/${other}/implies/${plain}`)
  t.strictSame(await roles(held), [...before!, 'oar'].sort(), 'what it implies is in existing tokens at once')
  await change(`DELETE /v3/roles/${other}/implies/${plain}`)
  t.equal(await validate(held), null)
  await change(`PUT /v3/roles/${other}/implies/${plain}`)
  const again = await tokenOf('rower', 'demo')
  t.ok((await roles(again))?.includes('oar'))
  await change(`DELETE /v3/roles/${other}`)
  t.equal(await validate(again), null)
  t.strictSame(await roles(await tokenOf('rower', 'demo')), before)
})

t.test('deleting a domain ends the tokens elsewhere that rest on its roles', async t => {
  const make = async (plural: string, body: object) =>
    (await as(`POST /v3/${plural}`, body)).text(`${plural.slice(0, -1)}.id`)
  const domain = await make('domains', { domain: { name: 'afar' } })
  const far = await make('roles', { role: { name: 'far', domain_id: domain } })
  const near = await make('roles', { role: { name: 'near', domain_id: 'default' } })
  const user = await makeUser('traveller', { grant: false })
  t.equal(await statusOf(`PUT /v3/projects/${projects.demo}/users/${user}/roles/${far}`), 403)
  t.equal(await statusOf(`PUT /v3/projects/${projects.demo}/users/${user}/roles/${near}`), 204)
  t.equal(await statusOf(`PUT /v3/roles/${near}/implies/${far}`), 201)
  t.equal(await statusOf(`PUT /v3/roles/${far}/implies/${await idOf('roles', 'reader')}`), 201)
  const validate = databaseTokenValidator(database)
  const token = await tokenOf('traveller', 'demo')
  t.strictSame((await validate(token))?.roles, ['reader'])
  await as(`PATCH /v3/domains/${domain}`, { domain: { enabled: false } })
  t.equal(await statusOf(`DELETE /v3/domains/${domain}`), 204)
  t.equal(await statusOf(`GET /v3/roles/${far}`), 404, 'they go with their domain')
  t.equal(await validate(token), null)
  await t.rejects(tokenOf('traveller', 'demo'), '401')
})
