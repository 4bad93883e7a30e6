import t from 'tap'
import { allRoutes } from '../../../controller/identity/routes.js'
import { startIdentity } from '../../support/worlds/identity.js'

const PERSONAS = ['admin', 'systemReader', 'service', 'member', 'unscoped'] as const
type Persona = (typeof PERSONAS)[number]

const admins: readonly Persona[] = ['admin']
const readers: readonly Persona[] = ['admin', 'systemReader']
const everyone: readonly Persona[] = PERSONAS
const nobody: readonly Persona[] = []

/**
 * Who may use each operation on objects that are not their own. Denied is 403; allowed is anything but 401 and
 * 403. A route without a row fails the test, as does a row without a route.
 */
const TABLE: Readonly<Record<string, readonly Persona[]>> = {
  'HEAD /auth/tokens': everyone,
  'GET /auth/tokens': everyone,
  'DELETE /auth/tokens': everyone,
  'GET /auth/projects': everyone,
  'GET /auth/domains': everyone,
  'GET /auth/system': everyone,
  'GET /auth/catalog': ['admin', 'service', 'member'],
  ...crud('users'),
  'GET /users/:user_id/projects': readers,
  'GET /users/:user_id/groups': readers,
  ...crud('projects'),
  'GET /projects/:id/tags': readers,
  'PUT /projects/:id/tags': admins,
  'DELETE /projects/:id/tags': admins,
  'GET /projects/:id/tags/:tag': readers,
  'PUT /projects/:id/tags/:tag': admins,
  'DELETE /projects/:id/tags/:tag': admins,
  ...crud('domains'),
  ...crud('roles'),
  'GET /role_inferences': readers,
  'GET /roles/:prior_id/implies': readers,
  'PUT /roles/:prior_id/implies/:implied_id': admins,
  'HEAD /roles/:prior_id/implies/:implied_id': readers,
  'GET /roles/:prior_id/implies/:implied_id': readers,
  'DELETE /roles/:prior_id/implies/:implied_id': admins,
  ...grants('/projects/:project_id'),
  ...grants('/domains/:domain_id'),
  ...grants('/system'),
  'GET /role_assignments': readers,
  ...crud('groups'),
  'GET /groups/:group_id/users': readers,
  'PUT /groups/:group_id/users/:user_id': admins,
  'GET /groups/:group_id/users/:user_id': readers,
  'DELETE /groups/:group_id/users/:user_id': admins,
  ...crud('services'),
  ...crud('endpoints'),
  ...crud('regions'),
  'GET /regions': everyone,
  'GET /regions/:id': everyone,
  'PUT /regions/:id': admins,
  ...crud('limits'),
  'GET /limits': everyone,
  'GET /limits/:id': everyone,
  'GET /limits/model': everyone,
  ...crud('registered_limits'),
  'GET /registered_limits': everyone,
  'GET /registered_limits/:id': everyone,
  // Users see and change their own credentials; administrators see and change all.
  'GET /credentials': everyone,
  'POST /credentials': everyone,
  'GET /credentials/:id': admins,
  'PATCH /credentials/:id': admins,
  'DELETE /credentials/:id': admins,
  'GET /users/:user_id/application_credentials': readers,
  'POST /users/:user_id/application_credentials': nobody,
  'GET /users/:user_id/application_credentials/:id': readers,
  'DELETE /users/:user_id/application_credentials/:id': admins,
}

/** What a user may do with its own objects, beyond the table. */
const OWN: readonly string[] = [
  'GET /users/:id',
  'GET /users/:user_id/projects',
  'GET /users/:user_id/groups',
  'GET /users/:user_id/application_credentials',
  'POST /users/:user_id/application_credentials',
  'GET /users/:user_id/application_credentials/:id',
  'DELETE /users/:user_id/application_credentials/:id',
]

function crud(plural: string): Record<string, readonly Persona[]> {
  return {
    [`GET /${plural}`]: readers,
    [`POST /${plural}`]: admins,
    [`GET /${plural}/:id`]: readers,
    [`PATCH /${plural}/:id`]: admins,
    [`DELETE /${plural}/:id`]: admins,
  }
}

function grants(target: string): Record<string, readonly Persona[]> {
  return Object.fromEntries(
    ['users/:user_id', 'groups/:group_id'].flatMap(actor => {
      const all = `${target}/${actor}/roles`
      return [
        [`GET ${all}`, readers],
        [`PUT ${all}/:role_id`, admins],
        [`GET ${all}/:role_id`, readers],
        [`DELETE ${all}/:role_id`, admins],
      ] as const
    }),
  )
}

const identity = await startIdentity()
t.teardown(identity.stop)
const { call, tokenOf, projects } = identity
const admin = await tokenOf('admin', 'admin')
const idOf = async (plural: string, name: string) => {
  const [found] = (await call(`GET /v3/${plural}?name=${name}`, { token: admin })).list(plural)
  return String(found!.id)
}
const makeUser = async (name: string) => {
  const body = { user: { name, password: `${name}-pw` } }
  return (await call('POST /v3/users', { token: admin, body })).text('user.id')
}
const overseer = await makeUser('overseer')
await call(`PUT /v3/system/users/${overseer}/roles/${await idOf('roles', 'reader')}`, { token: admin })
const worker = await makeUser('worker')
await call(`PUT /v3/projects/${projects.service}/users/${worker}/roles/${await idOf('roles', 'service')}`, {
  token: admin,
})
const demo = await idOf('users', 'demo')

const tokens: Record<Persona, string> = {
  admin,
  systemReader: await tokenOf('overseer', { system: { all: true } }),
  service: await tokenOf('worker', 'service'),
  member: await tokenOf('demo', 'demo'),
  unscoped: await tokenOf('demo', { unscoped: {} }),
}
const routes = allRoutes.flatMap(route => ('right' in route ? `${route.method} ${route.path.replace('/v3', '')}` : []))
const operation = (route: string, id: string) => route.replace(' ', ' /v3').replace(/:\w+/g, id)

t.test('the policy table has exactly one row for every route', async t => {
  t.same(Object.keys(TABLE).sort(), [...routes].sort())
})

t.test('each persona may use exactly the routes that the table allows', async t => {
  for (const route of routes) {
    const allowed = TABLE[route] ?? []
    const replies = await Promise.all(
      PERSONAS.map(persona => call(operation(route, 'not-there'), { token: tokens[persona] })),
    )
    for (const [index, persona] of PERSONAS.entries()) {
      const { status } = replies[index]!
      if (allowed.includes(persona)) t.notOk(status === 401 || status === 403, `${persona} may ${route}: ${status}`)
      else t.equal(status, 403, `${persona} may not ${route}`)
      t.ok(status < 500 || status === 501, `${persona} ${route}: ${status}`)
    }
  }
})

t.test('every route needs a valid token', async t => {
  for (const route of routes) {
    t.equal((await call(operation(route, 'x'))).status, 401, route)
    t.equal((await call(operation(route, 'x'), { token: 'nonsense' })).status, 401, route)
  }
})

t.test('a user may read and change its own objects and no other user’s', async t => {
  for (const route of OWN) {
    const own = route
      .replace(' ', ' /v3')
      .replace(':user_id', demo)
      .replace('/users/:id', `/users/${demo}`)
      .replace(':id', 'x')
    const { status } = await call(own, { token: tokens.member })
    t.notOk(status === 401 || status === 403, `${own}: ${status}`)
  }
  for (const [path, status] of [
    [`/v3/projects/${projects.demo}`, 200],
    [`/v3/projects/${projects.admin}`, 403],
    [`/v3/projects/${projects.demo}/tags`, 200],
    [`/v3/projects/${projects.admin}/tags`, 403],
    ['/v3/domains/default', 200],
    [`/v3/users/${overseer}`, 403],
  ] as const) {
    t.equal((await call(`GET ${path}`, { token: tokens.member })).status, status, path)
  }
})

t.test('a 403 names the requested action', async t => {
  t.match(await call('GET /v3/users', { token: tokens.member }), {
    status: 403,
    body: { error: { code: 403, title: 'Forbidden', message: 'requested action: GET /v3/users' } },
  })
})
