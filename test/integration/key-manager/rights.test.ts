import { randomUUID } from 'node:crypto'
import { Agent, request } from 'node:http'
import t from 'tap'
import { isPermitted, type Policy } from '../../../controller/key-manager/rights.js'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { routesOf } from '../../support/clients/routes.js'
import { type Case, isAllowed, RIGHTS } from '../../support/inputs/key-manager-rights.js'
import { keyManagerRoutes } from '../../support/inputs/key-manager-routes.js'

const POLICIES: readonly Policy[] = ['legacy', 'new', 'union']
const ROLES = ['admin', 'creator', 'observer', 'audit', 'key-manager:service-admin', 'member', 'reader', 'none']
const OWNERSHIPS = ['own', 'somebody else’s', 'foreign'] as const
const ACLS = ['none', 'private', 'listed'] as const

const { app, ask, store, database, config, url, stop } = await startTestKeyManager({
  crypto: { enable_multiple_secret_stores: true },
})
t.teardown(stop)

const secret = await store()
const holder = await ask('POST', '/v1/containers', {
  type: 'generic',
  secret_refs: [{ name: 'held, so that it cannot be deleted', secret_ref: `${url}/v1/secrets/${secret}` }],
})
const container = String(holder.body.container_ref).slice(-36)
const made = async () =>
  String((await ask('POST', '/v1/containers', { type: 'generic' })).body.container_ref).slice(-36)
/** Each DELETE has its own object, so that other routes keep theirs. */
const DELETED: Readonly<Record<string, string>> = {
  'DELETE /v1/secrets/:id/acl': await store(),
  'DELETE /v1/secrets/:id/metadata/:key': await store(),
  'DELETE /v1/containers/:id/acl': await made(),
  'DELETE /v1/containers/:id': await made(),
}
const consumers = { secrets: randomUUID(), containers: randomUUID() }
await database('secret_consumer').insert({
  ...{ id: consumers.secrets, secret_id: secret, project_id: OWN },
  ...{ service: 's', resource_type: 't', resource_id: 'r' },
})
await database('container_consumer').insert({
  ...{ id: consumers.containers, container_id: container, project_id: OWN, name: 'n', url: 'u' },
})
const orders = { shown: randomUUID(), 'DELETE /v1/orders/:id': randomUUID() }
await database('secret_order').insert(
  Object.values(orders).map(id => ({ id, project_id: OWN, creator_id: 'u', type: 'key', meta: {}, status: 'ACTIVE' })),
)
await database('certificate').insert({
  ...{
    id: container,
    project_id: OWN,
    creator_id: 'u',
    order_id: orders.shown,
    meta: {},
    renew: false,
    new_key: false,
  },
  ...{ ca_id: randomUUID(), serial: '1', issuer: 'CN=x', names: [], not_before: new Date(), not_after: new Date() },
})
const transportKey = randomUUID()
await database('transport_key').insert({ id: transportKey, plugin_name: 'p', transport_key: 'k' })

/**
 * Statuses of allowed requests that are not 200. Requests have no body, and name unknown objects if they would
 * otherwise change something.
 */
const ALLOWED: Readonly<Record<string, number>> = {
  // the body is validated after the rights
  ...Object.fromEntries(
    Object.keys(RIGHTS)
      .filter(route =>
        /^(POST|PUT|PATCH) \/v1\/(secrets|containers|certificates\/:id$|orders|transport_keys|project-quotas|bindings|cas$|acme-accounts)/.test(
          route,
        ),
      )
      .map(route => [route, 415]),
  ),
  ...Object.fromEntries(
    Object.keys(RIGHTS)
      .filter(route => /\/(cas|secret-stores|acme-accounts)\/:id/.test(route))
      .map(route => [route, 404]),
  ),
  'DELETE /v1/secrets/:id/consumers': 415,
  'DELETE /v1/containers/:id/consumers': 415,
  'DELETE /v1/containers/:id/secrets': 400,
  'POST /v1/certificates/:id/renew': 429,
  'POST /v1/certificates/:id/rollback': 409,
  'PUT /v1/orders': 405,
  'DELETE /v1/secrets/:id': 409,
  'DELETE /v1/secrets/:id/metadata/:key': 204,
  'DELETE /v1/containers/:id': 204,
  'DELETE /v1/orders/:id': 204,
  'GET /v1/project-quotas/:project': 404,
  'DELETE /v1/project-quotas/:project': 404,
  'DELETE /v1/transport_keys/:id': 404,
  'GET /v1/secret-stores/global-default': 404,
  'GET /v1/secret-stores/preferred': 404,
  'GET /v1/cas/preferred': 404,
  'GET /v1/cas/global-preferred': 404,
  'POST /v1/cas/unset-global-preferred': 204,
}

function pathOf(route: string): string {
  const [, pattern = ''] = route.split(' ')
  const [, , collection] = pattern.split('/')
  const present: Readonly<Record<string, string>> = {
    secrets: secret,
    containers: container,
    certificates: container,
    orders: orders.shown,
    transport_keys: route.startsWith('DELETE') ? randomUUID() : transportKey,
  }
  const id =
    DELETED[route] ?? (route === 'DELETE /v1/orders/:id' ? orders[route] : (present[collection ?? ''] ?? randomUUID()))
  return pattern
    .replace(':id', id)
    .replace(':key', 'k')
    .replace(':project', 'some-project')
    .replace(':load_balancer', randomUUID())
    .replace(':consumer', collection === 'secrets' ? consumers.secrets : consumers.containers)
}

const userOf = (role: string): string => `user-${role}`

/** Gives all objects the owner and the ACL that the case needs. */
async function arrange(
  role: string,
  ownership: (typeof OWNERSHIPS)[number],
  acl: (typeof ACLS)[number],
): Promise<Case> {
  const creator = ownership === 'own' ? userOf(role) : 'somebody'
  const users = acl === 'listed' ? ['somebody', userOf(role)] : []
  // With project access, a place on the list makes no difference.
  const leavesItToProject = acl === 'none' || (acl === 'listed' && ownership === 'foreign')
  const columns = { creator_id: creator, acl_users: users, acl_project_access: leavesItToProject }
  const acls = {
    acl_created_at: acl === 'none' ? null : new Date(),
    acl_updated_at: acl === 'none' ? null : new Date(),
  }
  await Promise.all([
    database('secret').update({ ...columns, ...acls, metadata: { k: 'v' } }),
    database('container').update({ ...columns, ...acls, deleted_at: null }),
    database('secret_order').update({ creator_id: creator, deleted_at: null }),
  ])
  return {
    role,
    isOfProject: ownership !== 'foreign',
    isCreator: ownership === 'own',
    leavesItToProject,
    listsCaller: acl === 'listed',
  }
}

const OF_AN_OBJECT = /\/v1\/(secrets|containers|certificates|orders)\/:id/
const served = routesOf(app)
  .map(({ method, path }) => `${method} ${path}`)
  .filter(route => route.includes(' /v1'))

t.test('the rights table has exactly one row for every route', async t => {
  t.same(Object.keys(RIGHTS).sort(), [...served].sort())
  t.same(Object.keys(RIGHTS).sort(), [...keyManagerRoutes.keys()].sort())
})

t.test('the rules decide every case as the rights table does', async t => {
  const yesNo = [true, false]
  const different: string[] = []
  let cases = 0
  for (const role of ROLES)
    for (const isOfProject of yesNo)
      for (const isCreator of yesNo)
        for (const leavesItToProject of yesNo)
          for (const listsCaller of yesNo) {
            const what = { role, isOfProject, isCreator, leavesItToProject, listsCaller }
            const who = { userId: 'u', projectId: isOfProject ? OWN : FOREIGN, roles: [role] }
            const creatorId = isCreator ? 'u' : 'x'
            const target = {
              projectId: OWN,
              creatorId,
              projectAccess: leavesItToProject,
              users: listsCaller ? ['u'] : [],
            }
            for (const [route, operation] of keyManagerRoutes)
              for (const policy of POLICIES) {
                cases++
                if (isPermitted(policy, operation, who, target) !== isAllowed(policy, route, what)) {
                  different.push(`${policy}: ${route} as ${JSON.stringify(what)}`)
                }
              }
          }
  t.same(different.slice(0, 20), [], `${cases} cases`)
})

const agent = new Agent({ keepAlive: true })
t.teardown(() => agent.destroy())

/** The status of an answer. `fetch` would take most of this test's time. */
const statusOf = (method: string, path: string, token: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const asked = request(
      url + path,
      { method, agent, timeout: 20_000, headers: { 'X-Auth-Token': token } },
      answer => {
        answer.resume().on('end', () => resolve(answer.statusCode ?? 0))
      },
    )
    asked.on('error', reject).on('timeout', () => asked.destroy(new Error(`${method} ${path} takes too long.`)))
    asked.end()
  })

/** Calls a route as a role and compares the status with the table. */
async function differenceOf(route: string, what: Case, policy: Policy): Promise<string | null> {
  const [method = ''] = route.split(' ')
  const token = tokenOf(what.role, what.isOfProject ? OWN : FOREIGN)
  const status = await statusOf(method, pathOf(route), token)
  const hidden = route.includes('/orders/:id') && !what.isOfProject ? 404 : 403
  const expected = isAllowed(policy, route, what) ? (ALLOWED[route] ?? 200) : hidden
  return status === expected ? null : `${policy}: ${route} as ${JSON.stringify(what)}: ${status}, not ${expected}`
}

/** Whether the case is worth a request: where legacy and new rules agree, the run of the union has tested it. */
const tells = (route: string, what: Case, policy: Policy): boolean =>
  policy !== 'union' || isAllowed('legacy', route, what) !== isAllowed('new', route, what)

/** Roles that the rules of a policy know; they ignore all others. */
const KNOWN: Readonly<Record<Policy, readonly string[]>> = {
  legacy: ['admin', 'creator', 'observer', 'audit', 'key-manager:service-admin', 'member'],
  new: ['admin', 'member', 'reader', 'creator'],
  union: ROLES,
}

for (const policy of POLICIES) {
  t.test(`policy ${policy}: the API answers requests for objects as the rights table says`, async t => {
    config.policy = policy
    for (const role of KNOWN[policy]) {
      const differences: (string | null)[] = []
      for (const ownership of OWNERSHIPS) {
        for (const acl of ACLS) {
          const what = await arrange(role, ownership, acl)
          const routes = served.filter(route => OF_AN_OBJECT.test(route) && tells(route, what, policy))
          differences.push(...(await Promise.all(routes.map(route => differenceOf(route, what, policy)))))
        }
      }
      t.same(differences.filter(Boolean), [], `${role}: ${differences.length} requests`)
    }
  })

  t.test(`policy ${policy}: the API answers requests without objects as the rights table says`, async t => {
    config.policy = policy
    for (const role of KNOWN[policy]) {
      const what = { role, isOfProject: true, isCreator: false, leavesItToProject: true, listsCaller: false }
      const routes = served.filter(route => !OF_AN_OBJECT.test(route) && tells(route, what, policy))
      const differences = await Promise.all(routes.map(route => differenceOf(route, what, policy)))
      t.same(differences.filter(Boolean), [], `${role}: ${differences.length} requests`)
    }
  })
}

t.test('a reference to another project’s object needs more than read access by its ACL', async t => {
  config.policy = 'union'
  const mine = tokenOf('admin,creator,member')
  const theirs = tokenOf('admin,creator,member', FOREIGN)
  const ref = (id: string) => `${url}/v1/secrets/${id}`
  const foreign = await store(undefined, theirs)
  const own = await store(undefined, mine)
  const make = (secret_ref: string, token: string) =>
    ask('POST', '/v1/containers', { type: 'generic', secret_refs: [{ name: 'a', secret_ref }] }, { token })
  t.equal((await make(ref(foreign), mine)).status, 404)
  const container = new URL(String((await make(ref(own), mine)).body.container_ref)).pathname
  const add = (id: string, token: string) =>
    ask('POST', `${container}/secrets`, { name: 'b', secret_ref: ref(id) }, { token })
  t.equal((await add(foreign, mine)).status, 404)
  t.equal((await add(foreign, theirs)).status, 403, 'the container belongs to another project')

  await ask('PUT', `/v1/secrets/${foreign}/acl`, { read: { users: ['user-admin,creator,member'] } }, { token: theirs })
  t.equal((await ask('GET', `/v1/secrets/${foreign}/payload`, undefined, { token: mine })).status, 200)
  t.equal((await add(foreign, mine)).status, 404, 'even though the ACL lets the caller read it')
  t.equal((await make(ref(foreign), mine)).status, 404)
  t.equal(
    (await ask('DELETE', `/v1/secrets/${foreign}`, undefined, { token: theirs })).status,
    204,
    'no container refers to it',
  )

  const reader = tokenOf('reader', FOREIGN)
  await ask('PUT', `${container}/acl`, { read: { users: ['user-reader'] } }, { token: mine })
  t.match(await ask('GET', container, undefined, { token: reader }), {
    status: 200,
    body: { secret_refs: [{ name: 'a' }] },
  })
  t.equal(
    (await ask('GET', `/v1/secrets/${own}`, undefined, { token: reader })).status,
    403,
    'the container’s ACL does not cover its secrets',
  )
  t.equal((await ask('DELETE', container, undefined, { token: reader })).status, 403)
  for (const path of ['/v1/containers', '/v1/secrets?name=a']) {
    t.match((await ask('GET', path, undefined, { token: tokenOf('member', FOREIGN) })).body, { total: 0 }, path)
  }
})
