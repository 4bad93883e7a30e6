import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { createLoadBalancerApi } from '../../../controller/load-balancer/api.js'
import { type Grant, RIGHTS } from '../../../controller/load-balancer/schema/rights.js'
import { createLog } from '../../../controller/log/log.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'
import { callerOf, FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { ANY_CERTIFICATE, SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'
import { routesOf } from '../../support/clients/routes.js'
import { loadBalancerRoutes, type Route, rightOf } from '../../support/inputs/load-balancer-routes.js'
import { makeWorld, OFFERED, type World } from '../../support/worlds/load-balancer-world.js'

const ROLES = [
  'reader',
  'member',
  'admin',
  'service',
  'load-balancer_observer',
  'load-balancer_global_observer',
  'load-balancer_member',
  'load-balancer_quota_admin',
  'load-balancer_admin',
  'nobody',
]

const OBJECTS = {
  loadbalancers: 'lb',
  listeners: 'listener',
  pools: 'pool',
  healthmonitors: 'monitor',
  l7policies: 'policy',
  amphorae: 'amphora',
  flavors: 'flavor',
  flavorprofiles: 'flavorProfile',
  availabilityzones: 'zoneProfile',
  availabilityzoneprofiles: 'zoneProfile',
} as const

/** Routes of objects without a project: a right on them holds in any project. */
const SHARED =
  /^(\w+) \/lbaas\/(flavors|flavorprofiles|availabilityzones|availabilityzoneprofiles|providers|quotas\/defaults)(\/|$)/

function requestOf(route: Route, world: World): { method: string; path: string; body: object | undefined } {
  const [method, pattern] = route.split(' ') as [string, string]
  const collection = pattern.split('/')[2] as keyof typeof OBJECTS
  const own = pattern.includes('members')
    ? world.member
    : pattern.includes('rules')
      ? world.rule
      : world[OBJECTS[collection] ?? 'lb']
  const path = pattern
    .replace(':pool', world.pool)
    .replace(':policy', world.policy)
    .replace(':project', world.project)
    .replace(':provider', 'amphora')
    .replace(/:(id|name)$|:id/, own)
  const bodies: Partial<Record<Route, object>> = {
    'POST /lbaas/loadbalancers': { loadbalancer: { vip_subnet_id: SUBNET, project_id: world.project } },
    'PUT /lbaas/loadbalancers/:id': { loadbalancer: { name: 'x' } },
    'POST /lbaas/listeners': { listener: { loadbalancer_id: world.lb, protocol: 'TCP', protocol_port: 80 } },
    'PUT /lbaas/listeners/:id': { listener: { name: 'x' } },
    'POST /lbaas/pools': { pool: { loadbalancer_id: world.lb, protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' } },
    'PUT /lbaas/pools/:id': { pool: { name: 'x' } },
    'POST /lbaas/pools/:pool/members': { member: { address: '10.0.0.1', protocol_port: 80 } },
    'PUT /lbaas/pools/:pool/members': { members: [{ address: '10.0.0.1', protocol_port: 80 }] },
    'PUT /lbaas/pools/:pool/members/:id': { member: { weight: 1 } },
    'POST /lbaas/healthmonitors': {
      healthmonitor: { pool_id: world.pool, type: 'TCP', delay: 1, timeout: 1, max_retries: 1 },
    },
    'PUT /lbaas/healthmonitors/:id': { healthmonitor: { name: 'x' } },
    'POST /lbaas/l7policies': { l7policy: { listener_id: world.listener, action: 'REJECT' } },
    'PUT /lbaas/l7policies/:id': { l7policy: { name: 'x' } },
    'POST /lbaas/l7policies/:policy/rules': { rule: { type: 'PATH', compare_type: 'EQUAL_TO', value: '/' } },
    'PUT /lbaas/l7policies/:policy/rules/:id': { rule: { invert: true } },
    'PUT /lbaas/quotas/:project': { quota: { pool: 1000 } },
    'POST /lbaas/flavors': { flavor: { name: 'x', flavor_profile_id: world.flavorProfile } },
    'PUT /lbaas/flavors/:id': { flavor: { enabled: true } },
    'POST /lbaas/flavorprofiles': { flavorprofile: { name: 'x', provider_name: 'amphora', flavor_data: '{}' } },
    'PUT /lbaas/flavorprofiles/:id': { flavorprofile: { name: 'y' } },
    'POST /lbaas/availabilityzones': {
      availability_zone: { name: 'x', availability_zone_profile_id: world.zoneProfile },
    },
    'PUT /lbaas/availabilityzones/:name': { availability_zone: { enabled: true } },
    'POST /lbaas/availabilityzoneprofiles': {
      availability_zone_profile: { name: 'x', provider_name: 'amphora', availability_zone_data: '{}' },
    },
    'PUT /lbaas/availabilityzoneprofiles/:id': { availability_zone_profile: { name: 'y' } },
  }
  return { method, path, body: bodies[route] }
}

t.test('every route needs a role, except those that describe the API', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const app = createLoadBalancerApi({
    database: api.database,
    network: createNoopNetworkDriver(),
    certificates: ANY_CERTIFICATE,
    validate: async token => callerOf(token),
    identityUrl: '',
    providers: [],
    config: configurationSchema.parse({}).load_balancer,
    log: createLog('test', 'silent'),
  })
  t.strictSame(
    routesOf(app)
      .map(({ method, path }) => `${method} ${path}`)
      .filter(route => !['GET /', 'GET /v2', 'GET /openapi', 'GET /docs'].includes(route))
      .sort(),
    [...loadBalancerRoutes.keys()].sort(),
  )
})

// Deletions come last; a refused request changes nothing.
const routes = [...loadBalancerRoutes.keys()].sort(
  (a, b) => Number(a.startsWith('DELETE')) - Number(b.startsWith('DELETE')),
)

for (const policy of ['union', 'legacy', 'new'] as const) {
  t.test(`every route checks roles and project by the policy ${policy}`, async t => {
    const api = await startTestApi({ ...OFFERED, settings: { policy } })
    t.teardown(api.stop)
    const world = await makeWorld(api, OWN, 'noop_driver', 'admin')
    for (const route of routes) {
      const { owner, everywhere }: Grant = RIGHTS[rightOf(route)][policy]
      const { method, path, body } = requestOf(route, world)
      const isList = method === 'GET' && /^GET \/(lbaas|octavia)\/\w+$/.test(route)
      const wrong: string[] = []
      const ask = async (role: string, project: string, allowed: boolean) => {
        const { status } = await api.ask(method, path, body, tokenOf(role, project))
        const isRight = allowed ? status !== 403 && status !== 401 && status < 500 : status === 403
        if (!isRight) wrong.push(`${role} of ${project.slice(0, 1) || 'no'} project: ${status}`)
      }
      const callers = [OWN, FOREIGN, ''].flatMap(project =>
        ROLES.map(role => {
          // An unfiltered list shows the caller's own project, so the caller owns all it lists.
          const isOwner = project === OWN || ((isList || SHARED.test(route)) && project === FOREIGN)
          const allowed = project !== '' && (everywhere.includes(role) || (isOwner && owner.includes(role)))
          return { role, project, allowed }
        }),
      )
      const refused = callers.filter(({ allowed }) => !allowed)
      await Promise.all(refused.map(({ role, project }) => ask(role, project, false)))
      for (const { role, project } of callers.filter(({ allowed }) => allowed)) await ask(role, project, true)
      t.strictSame(wrong, [], route)
    }
  })
}

t.test('readers read, members change their own project, global observers read every project', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const world = await makeWorld(api)
  const path = `/v2/lbaas/loadbalancers/${world.lb}`
  const status = async (method: string, token: string, body?: object) =>
    (await api.ask(method, path, body, token)).status
  t.equal(await status('GET', tokenOf('reader')), 200)
  t.equal(await status('PUT', tokenOf('reader'), { loadbalancer: {} }), 403)
  t.equal(await status('PUT', tokenOf('load-balancer_member'), { loadbalancer: {} }), 200)
  t.match(await api.ask('GET', path, undefined, tokenOf('member', FOREIGN)), {
    status: 403,
    body: { faultcode: 'Client', faultstring: 'Policy does not allow this request to be performed.', debuginfo: null },
  })
  t.equal(
    await status('PUT', tokenOf('member', FOREIGN), { bogus: 1 }),
    400,
    'a malformed body is 400, whoever sends it',
  )
  t.equal(await status('PUT', tokenOf('load-balancer_global_observer', FOREIGN), { loadbalancer: {} }), 403)
  t.equal(await status('GET', tokenOf('load-balancer_global_observer', FOREIGN)), 200)
  t.equal(
    (await api.ask('GET', `/v2/lbaas/pools/${world.pool}/members`, undefined, tokenOf('service', FOREIGN))).status,
    200,
  )
  t.equal(
    (await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET, project_id: FOREIGN } }))
      .status,
    403,
  )
  t.match(
    await api.ask(
      'POST',
      '/v2/lbaas/loadbalancers',
      { loadbalancer: { vip_subnet_id: SUBNET, tenant_id: FOREIGN } },
      tokenOf('admin'),
    ),
    { status: 201, body: { loadbalancer: { project_id: FOREIGN } } },
  )
})

t.test('a request cannot refer to another project’s objects', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const own = await makeWorld(api)
  const foreign = await makeWorld(api, FOREIGN)
  const references: [string, string, object, number][] = [
    ['POST', 'listeners', { listener: { loadbalancer_id: foreign.lb, protocol: 'TCP', protocol_port: 1 } }, 403],
    [
      'POST',
      'listeners',
      { listener: { loadbalancer_id: own.lb, protocol: 'HTTP', protocol_port: 1, default_pool_id: foreign.pool } },
      404,
    ],
    ['PUT', `listeners/${own.listener}`, { listener: { default_pool_id: foreign.pool } }, 404],
    ['POST', 'pools', { pool: { loadbalancer_id: foreign.lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' } }, 403],
    ['POST', 'pools', { pool: { listener_id: foreign.listener, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' } }, 403],
    [
      'POST',
      'pools',
      {
        pool: { loadbalancer_id: own.lb, listener_id: foreign.listener, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
      },
      404,
    ],
    [
      'POST',
      'healthmonitors',
      { healthmonitor: { pool_id: foreign.pool, type: 'TCP', delay: 1, timeout: 1, max_retries: 1 } },
      403,
    ],
    ['POST', 'l7policies', { l7policy: { listener_id: foreign.listener, action: 'REJECT' } }, 403],
    [
      'POST',
      'l7policies',
      { l7policy: { listener_id: own.listener, action: 'REDIRECT_TO_POOL', redirect_pool_id: foreign.pool } },
      404,
    ],
    ['PUT', `l7policies/${own.policy}`, { l7policy: { redirect_pool_id: foreign.pool } }, 404],
    ['PUT', `l7policies/${foreign.policy}/rules/${foreign.rule}`, { rule: { invert: true } }, 403],
    ['PUT', `l7policies/${own.policy}/rules/${foreign.rule}`, { rule: { invert: true } }, 404],
    ['POST', `pools/${foreign.pool}/members`, { member: { address: '10.0.0.5', protocol_port: 1 } }, 403],
    ['PUT', `pools/${foreign.pool}/members`, { members: [] }, 403],
    ['PUT', `pools/${own.pool}/members/${foreign.member}`, { member: { weight: 0 } }, 404],
  ]
  for (const [method, path, body, status] of references) {
    t.equal(
      (await api.ask(method, `/v2/lbaas/${path}`, body)).status,
      status,
      `${method} ${path} ${JSON.stringify(body)}`,
    )
  }
  const nobodys = { l7policy: { listener_id: '77777777-7777-4777-8777-777777777777', action: 'REJECT' } }
  t.match(await api.ask('POST', '/v2/lbaas/l7policies', nobodys), {
    status: 404,
    body: { faultstring: 'Listener 77777777-7777-4777-8777-777777777777 not found.' },
  })
  t.same((await api.ask('GET', `/v2/lbaas/listeners?loadbalancer_id=${foreign.lb}`)).body.listeners, [])
  const seen = { member: 0, subnet: 0 }
  const blind = await startTestApi({
    ...OFFERED,
    network: {
      ...createNoopNetworkDriver(),
      findSubnet: async (caller, id) => {
        seen.subnet++
        return id === SUBNET || caller.project?.id === FOREIGN ? createNoopNetworkDriver().findSubnet(caller, id) : null
      },
    },
  })
  t.teardown(blind.stop)
  const world = await makeWorld(blind)
  const OTHER = '99999999-9999-4999-8999-999999999999'
  const before = seen.subnet
  t.match(
    await blind.ask('POST', `/v2/lbaas/pools/${world.pool}/members`, {
      member: { address: '10.0.0.5', protocol_port: 1, subnet_id: OTHER },
    }),
    { status: 400, body: { faultstring: `Subnet ${OTHER} not found.` } },
  )
  t.equal(
    (
      await blind.ask(
        'PUT',
        `/v2/lbaas/pools/${world.pool}/members`,
        [1, 2, 3].map(port => ({ address: '10.0.0.5', protocol_port: port, subnet_id: SUBNET })),
      )
    ).status,
    202,
  )
  t.equal(seen.subnet - before, 2, 'each distinct subnet is looked up once')
})
