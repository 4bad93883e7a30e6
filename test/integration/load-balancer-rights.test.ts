import fc from 'fast-check'
import t from 'tap'
import { z } from 'zod'
import { configurationSchema } from '../../controller/config/schema.js'
import { createLoadBalancerApi } from '../../controller/load-balancer/api.js'
import type { Attributes } from '../../controller/load-balancer/attributes.js'
import { availabilityZoneProfile } from '../../controller/load-balancer/availability-zone-profiles/resource.js'
import { availabilityZone } from '../../controller/load-balancer/availability-zones/resource.js'
import { flavorProfile } from '../../controller/load-balancer/flavor-profiles/resource.js'
import { flavor } from '../../controller/load-balancer/flavors/resource.js'
import { healthMonitor } from '../../controller/load-balancer/health-monitors/resource.js'
import { l7Policy } from '../../controller/load-balancer/l7-policies/resource.js'
import { l7Rule } from '../../controller/load-balancer/l7-rules/resource.js'
import { listener } from '../../controller/load-balancer/listeners/resource.js'
import { loadBalancer } from '../../controller/load-balancer/load-balancers/resource.js'
import { member } from '../../controller/load-balancer/members/resource.js'
import { pool } from '../../controller/load-balancer/pools/resource.js'
import { RIGHTS, ROUTE_RIGHTS, type Route } from '../../controller/load-balancer/rights.js'
import { createLog } from '../../controller/log/log.js'
import { createNoopNetworkDriver } from '../../controller/network/noop/driver.js'
import {
  at,
  callerOf,
  FOREIGN,
  OWN,
  SUBNET,
  startTestApi,
  type TestApi,
  tokenOf,
} from '../support/load-balancer-api.js'

const OFFERED = { providers: ['amphora', 'noop_driver'] }

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

/** One tree, and how each route asks for something in it. */
async function makeWorld(api: TestApi, project = OWN) {
  const created = await api.ask(
    'POST',
    '/v2/lbaas/loadbalancers',
    {
      loadbalancer: {
        // whose provider takes everything, so that nothing is refused for what an amphora cannot do
        provider: 'noop_driver',
        vip_subnet_id: SUBNET,
        listeners: [
          {
            protocol: 'HTTP',
            protocol_port: 80,
            l7policies: [{ action: 'REJECT', rules: [{ type: 'PATH', compare_type: 'EQUAL_TO', value: '/x' }] }],
            default_pool: {
              name: 'p',
              protocol: 'HTTP',
              lb_algorithm: 'ROUND_ROBIN',
              members: [{ address: '10.0.0.1', protocol_port: 80 }],
              healthmonitor: { type: 'HTTP', delay: 5, timeout: 3, max_retries: 2 },
            },
          },
        ],
      },
    },
    tokenOf('member', project),
  )
  const id = (...path: (string | number)[]) => String(at(created.body, 'loadbalancer', ...path, 'id'))
  const amphora = crypto.randomUUID()
  await api.database('amphora').insert({ id: amphora, load_balancer_id: id(), status: 'ALLOCATED' })
  const [flavor, flavorProfile, zoneProfile] = [crypto.randomUUID(), crypto.randomUUID(), crypto.randomUUID()]
  await api
    .database('flavor_profile')
    .insert({ id: flavorProfile, name: 'p', provider_name: 'amphora', flavor_data: '{}' })
  await api.database('flavor').insert({ id: flavor, name: flavor, flavor_profile_id: flavorProfile })
  await api
    .database('availability_zone_profile')
    .insert({ id: zoneProfile, name: 'p', provider_name: 'amphora', availability_zone_data: '{}' })
  await api.database('availability_zone').insert({ name: zoneProfile, availability_zone_profile_id: zoneProfile })
  return {
    lb: id(),
    listener: id('listeners', 0),
    pool: id('pools', 0),
    member: id('pools', 0, 'members', 0),
    monitor: id('pools', 0, 'healthmonitor'),
    policy: id('listeners', 0, 'l7policies', 0),
    rule: id('listeners', 0, 'l7policies', 0, 'rules', 0),
    amphora,
    flavor,
    flavorProfile,
    zoneProfile,
    project,
  }
}

type World = Awaited<ReturnType<typeof makeWorld>>

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

/** Creates whose body names what the object belongs to: another project's is as if it did not exist, unless the caller may see it. */
const NAMES_ITS_PARENT = /^POST \/lbaas\/(listeners|pools|healthmonitors|l7policies)$/

/** What belongs to no project: whoever may do something there may do it in any project. */
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

t.test('rights', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const world = await makeWorld(api)

  await t.test('every route that is served has a row in the table, and the other way round', async t => {
    const app = createLoadBalancerApi({
      database: api.database,
      network: createNoopNetworkDriver(),
      validate: async token => callerOf(token),
      identityUrl: '',
      providers: [],
      config: configurationSchema.parse({}).load_balancer,
      log: createLog('test', 'silent'),
    })
    const served = app.middleware.flatMap(middleware => {
      const { router } = middleware as { router?: { stack: { methods: string[]; path: string }[] } }
      return (router?.stack ?? []).flatMap(({ methods, path }) =>
        methods.filter(method => method !== 'HEAD').map(method => `${method} ${path}`),
      )
    })
    t.strictSame(served.filter(route => !['GET /', 'GET /v2', 'GET /openapi', 'GET /docs'].includes(route)).sort(), Object.keys(ROUTE_RIGHTS).sort())
  })
  // Deletions and what needs the objects come last, and every refusal leaves the world as it was.
  const routes = (Object.keys(ROUTE_RIGHTS) as Route[]).sort(
    (a, b) => Number(a.startsWith('DELETE')) - Number(b.startsWith('DELETE')),
  )
  for (const route of routes) {
    await t.test(route, async t => {
      const { owner, everywhere }: { owner: readonly string[]; everywhere: readonly string[] } =
        RIGHTS[ROUTE_RIGHTS[route]]
      const { method, path, body } = requestOf(route, world)
      const seesAll: readonly string[] = RIGHTS.read.everywhere
      const isList = method === 'GET' && /^GET \/(lbaas|octavia)\/\w+$/.test(route)
      for (const role of ROLES) {
        for (const project of [OWN, FOREIGN, '']) {
          // A list without a filter shows the caller's own project, so there the caller is always the owner of what it may see.
          const isOwner = project === OWN || ((isList || SHARED.test(route)) && project === FOREIGN)
          const allowed = project !== '' && (everywhere.includes(role) || (isOwner && owner.includes(role)))
          const hidden = NAMES_ITS_PARENT.test(route) && project === FOREIGN && !seesAll.includes(role)
          const { status } = await api.ask(method, path, body, tokenOf(role, project))
          t.ok(
            allowed ? status !== 403 && status !== 401 && status < 500 : status === (hidden ? 404 : 403),
            `${role} of ${project.slice(0, 1) || 'no'} project: ${status}`,
          )
        }
      }
    })
  }
})

t.test('rights, in words rather than by the table', async t => {
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
    'a malformed body is that, whoever sends it',
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

t.test('another project’s objects cannot be referred to', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const own = await makeWorld(api)
  const foreign = await makeWorld(api, FOREIGN)
  const references: [string, string, object, number][] = [
    ['POST', 'listeners', { listener: { loadbalancer_id: foreign.lb, protocol: 'TCP', protocol_port: 1 } }, 404],
    [
      'POST',
      'listeners',
      { listener: { loadbalancer_id: own.lb, protocol: 'HTTP', protocol_port: 1, default_pool_id: foreign.pool } },
      404,
    ],
    ['PUT', `listeners/${own.listener}`, { listener: { default_pool_id: foreign.pool } }, 404],
    ['POST', 'pools', { pool: { loadbalancer_id: foreign.lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' } }, 404],
    ['POST', 'pools', { pool: { listener_id: foreign.listener, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' } }, 404],
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
      404,
    ],
    ['POST', 'l7policies', { l7policy: { listener_id: foreign.listener, action: 'REJECT' } }, 404],
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

/** Text as HTTP can carry it: without halves of surrogate pairs. */
const wellFormed = (text: string): string => Buffer.from(text).toString()

/** Values of an attribute: good ones by its own JSON Schema, and anything. */
function arbitraryOf(schema: Readonly<Record<string, unknown>>): fc.Arbitrary<unknown> {
  const choices = schema.enum
  if (Array.isArray(choices)) return fc.constantFrom<unknown>(...choices)
  switch (schema.type) {
    case 'integer':
      return fc.integer({ min: Math.max(Number(schema.minimum), -10), max: Math.min(Number(schema.maximum), 70_000) })
    case 'boolean':
      return fc.boolean()
    case 'array':
      return fc.array(arbitraryOf(Object(schema.items)), { maxLength: 3 })
    case 'object':
      return fc.dictionary(
        fc.string({ unit: 'binary', maxLength: 8 }),
        fc.oneof(fc.string({ unit: 'binary' }), fc.jsonValue()),
        { maxKeys: 3 },
      )
    default:
      if (schema.format === 'uuid') return fc.uuid()
      return Array.isArray(schema.anyOf)
        ? fc.oneof(fc.ipV4(), fc.ipV6())
        : fc.string({ unit: 'binary', maxLength: 300 })
  }
}

const bodyOf = (
  attributes: Attributes,
  only: 'create' | 'update',
  known: Readonly<Record<string, unknown>>,
): fc.Arbitrary<object> => {
  const entries = Object.entries(attributes).filter(
    ([, { input }]) => input === 'create-and-update' || (only === 'create' && input === 'create'),
  )
  const fields = entries.map(([name, { type }]) => {
    const good = Object.hasOwn(known, name) ? fc.constant(known[name]) : arbitraryOf(type?.jsonSchema ?? {})
    return [
      name,
      fc.oneof(
        { weight: 30, arbitrary: good },
        { weight: 1, arbitrary: fc.jsonValue() },
        { weight: 1, arbitrary: fc.constant(null) },
      ),
    ] as const
  })
  const required = entries.filter(([, attribute]) => attribute.required).map(([name]) => name)
  return fc.record(Object.fromEntries(fields), { requiredKeys: required })
}

t.test('whatever is sent, the answer has the API’s own shape and is never an unexpected error', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const world = await makeWorld(api)
  const tally = new Map<number, number>()
  const fault = z.strictObject({
    faultcode: z.enum(['Client', 'Server']),
    faultstring: z.string().min(1),
    debuginfo: z.null(),
  })
  const routed = z.strictObject({ ...fault.shape, code: z.int(), title: z.string(), description: z.string() })
  const check = async (method: string, path: string, body?: unknown, token = tokenOf('member')) => {
    const reply = await api.ask(method, path, body, token)
    tally.set(reply.status, (tally.get(reply.status) ?? 0) + 1)
    if (reply.status < 400) return
    if (reply.status >= 500 && reply.status !== 501)
      throw new Error(`${method} ${path} ${JSON.stringify(body)}: ${reply.status} ${reply.text}`)
    if (!z.union([fault, routed]).safeParse(reply.body).success) throw new Error(`${method} ${path}: ${reply.text}`)
  }
  const run = <T>(arbitrary: fc.Arbitrary<T>, body: (value: T) => Promise<void>, numRuns = 60) =>
    fc.assert(fc.asyncProperty(arbitrary, body), { numRuns, endOnFailure: true })
  const known = {
    loadbalancer_id: world.lb,
    pool_id: world.pool,
    listener_id: world.listener,
    default_pool_id: world.pool,
    redirect_pool_id: world.pool,
    redirect_url: 'http://a.example',
    redirect_prefix: 'https://a.example',
    vip_subnet_id: SUBNET,
    vip_port_id: null,
    vip_network_id: null,
    provider: 'amphora',
    provider_name: 'amphora',
    flavor_profile_id: world.flavorProfile,
    availability_zone_profile_id: world.zoneProfile,
    flavor_data: '{"loadbalancer_topology": "SINGLE"}',
    project_id: OWN,
    tenant_id: OWN,
  }
  const targets = [
    [loadBalancer, 'loadbalancers', world.lb],
    [listener, 'listeners', world.listener],
    [pool, 'pools', world.pool],
    [member, `pools/${world.pool}/members`, world.member],
    [healthMonitor, 'healthmonitors', world.monitor],
    [l7Policy, 'l7policies', world.policy],
    [l7Rule, `l7policies/${world.policy}/rules`, world.rule],
    [flavor, 'flavors', world.flavor],
    [flavorProfile, 'flavorprofiles', world.flavorProfile],
    [availabilityZone, 'availabilityzones', world.zoneProfile],
    [availabilityZoneProfile, 'availabilityzoneprofiles', world.zoneProfile],
  ] as const
  for (const [resource, path, id] of targets) {
    await t.test(resource.label, async () => {
      const attributes: Attributes = resource.attributes
      const token = tokenOf(resource.project === null ? 'admin' : 'member')
      await run(bodyOf(attributes, 'create', known), body =>
        check('POST', `/v2/lbaas/${path}`, { [resource.singular]: body }, token),
      )
      await run(bodyOf(attributes, 'update', known), body =>
        check('PUT', `/v2/lbaas/${path}/${id}`, { [resource.singular]: body }, token),
      )
      await run(fc.jsonValue(), body => check('POST', `/v2/lbaas/${path}`, body, token), 30)
      const name = fc.oneof(
        {
          weight: 5,
          arbitrary: fc.constantFrom(
            ...Object.keys(attributes),
            'sort',
            'sort_key',
            'sort_dir',
            'limit',
            'marker',
            'page_reverse',
            'fields',
            'tags',
            'not-tags-any',
          ),
        },
        fc.string(),
      )
      const value = fc.oneof(
        fc.string({ unit: 'binary' }),
        fc.constantFrom(
          '1',
          'true',
          'name:desc',
          'id',
          '-1',
          '99999999999999999999',
          '1e9',
          world.lb,
          '2026-01-01T00:00:00',
          "'; --",
          '2026-02-31T25:61:61',
        ),
      )
      await run(
        fc.array(fc.tuple(name, value), { maxLength: 4 }),
        pairs =>
          check(
            'GET',
            `/v2/lbaas/${path}?${new URLSearchParams(pairs.map(([key, text]): [string, string] => [wellFormed(key), wellFormed(text)]))}`,
            undefined,
            token,
          ),
        80,
      )
    })
  }
  await t.test('batches, paths and broken JSON', async () => {
    await run(fc.array(bodyOf(member.attributes, 'create', {}), { maxLength: 4 }), body =>
      check('PUT', `/v2/lbaas/pools/${world.pool}/members`, body),
    )
    await run(fc.webPath(), path => check('GET', `/v2/lbaas${path}`))
    await run(fc.string({ unit: 'binary', minLength: 1 }), body =>
      check('POST', '/v2/lbaas/loadbalancers', wellFormed(body)),
    )
    await run(fc.string({ unit: 'binary', minLength: 1 }), id =>
      check('GET', `/v2/lbaas/listeners/${encodeURIComponent(wellFormed(id))}`),
    )
    for (const path of [
      '/v2/lbaas/pools/%E0%A4%A',
      '/v2/lbaas/pools/%00',
      '//',
      '/v2//lbaas',
      '/v2/lbaas/pools/..%2f..',
    ])
      await check('GET', path)
  })
  t.ok(
    (tally.get(201) ?? 0) > 10 && (tally.get(200) ?? 0) > 20 && (tally.get(400) ?? 0) > 50,
    `the tries reach deep enough: ${JSON.stringify([...tally])}`,
  )
})
