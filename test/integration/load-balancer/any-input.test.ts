import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import * as z from 'zod'
import type { HaproxyPart } from '../../../amphora-agent/protocol/desired.js'
import { loadBalancerDescription } from '../../../controller/load-balancer/api/description.js'
import { ROUTES } from '../../../controller/load-balancer/api.js'
import { RESOURCES } from '../../../controller/load-balancer/description/resources.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { idIn } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'
import { anyText } from '../../support/inputs/any-text.js'
import { arbitraryOf, attemptUntilDone, wellFormed } from '../../support/inputs/arbitrary-input.js'
import { IPV6_SUBNET, REF } from '../../support/inputs/load-balancer-options.js'
import { loadBalancerRoutes, type Route } from '../../support/inputs/load-balancer-routes.js'
import { asOneFile, checkWithHaproxy } from '../../support/services/haproxy.js'
import { factsFor } from '../../support/worlds/injection-scene.js'
import { makeWorld, OFFERED, type World } from '../../support/worlds/load-balancer-world.js'

const { components } = loadBalancerDescription(ROUTES, 'union') as {
  components: { schemas: Record<string, Record<string, unknown>> }
}
const formOf = (route: Route) => loadBalancerRoutes.get(route)?.requestForm

const TLS_REFERENCES = [
  ...['default_tls_container_ref', 'client_ca_tls_container_ref', 'client_crl_container_ref'],
  ...['tls_container_ref', 'ca_tls_container_ref', 'crl_container_ref'],
]
/** Mostly unset: few providers and protocols support these options, so setting them would fail most requests. */
const NOTHING = [null, null, null, null]

/** @returns null when nothing is served */
function haproxyFor(tree: LoadBalancerTree): HaproxyPart | null {
  const desired = { ...tree, change: 'update' as const, topology: 'ACTIVE_STANDBY' as const }
  return renderDesired(desired, factsFor(tree)).haproxy
}

type Spare = { pool: string; flavorProfile: string; flavor: string; zoneProfile: string; zone: string }

/** Good values for attributes whose schema alone does not lead past the first checks. */
const knownIn = (world: World, provider: string, spare: Spare) => ({
  // mostly new, because requests refer to pools by name
  name: Array.from({ length: 50 }, () => randomUUID()),
  loadbalancer_id: [world.lb],
  pool_id: [world.pool, spare.pool],
  listener_id: [world.listener],
  default_pool_id: [world.pool],
  redirect_pool_id: [world.pool],
  redirect_url: ['http://a.example', 'https://a.example/%41?x=%[src]'],
  redirect_prefix: ['https://a.example'],
  vip_subnet_id: [SUBNET, SUBNET, IPV6_SUBNET],
  vip_port_id: [null],
  vip_network_id: [null],
  vip_address: [null],
  vip_qos_policy_id: [null, null, SUBNET],
  vip_sg_ids: [[], [], [SUBNET]],
  ...Object.fromEntries(TLS_REFERENCES.map(reference => [reference, [...NOTHING, REF]])),
  sni_container_refs: [[], [], [REF]],
  tls_ciphers: [...NOTHING, 'ECDHE-RSA-AES128-GCM-SHA256'],
  tls_versions: [...NOTHING, ['TLSv1.3']],
  alpn_protocols: [...NOTHING, ['h2']],
  hsts_max_age: [...NOTHING, 1],
  protocol: ['HTTP', 'HTTP', 'HTTP', 'TCP', 'HTTPS', 'PROXY', 'UDP', 'PROMETHEUS', 'TERMINATED_HTTPS'],
  url_path: ['/', '/a?b=%20&c'],
  expected_codes: ['200', '200-299', '200, 404', '299-200'],
  domain_name: ['a.example'],
  http_version: [1.1, 1],
  key: ['X-A', null],
  value: ['a', '"a b"', '^/a(b|c)$', '%[src]'],
  cookie_name: ['c', null],
  insert_headers: [{ 'X-Forwarded-For': 'true' }, { 'X-Real-IP': '%[src]', 'X-Forwarded-Port': 'True' }],
  provider: [provider],
  provider_name: [provider],
  flavor_id: [spare.flavor],
  availability_zone: [spare.zone],
  flavor_profile_id: [spare.flavorProfile],
  availability_zone_profile_id: [spare.zoneProfile],
  flavor_data: ['{"loadbalancer_topology": "SINGLE"}', '{"sriov_vip": true}', '{}'],
  availability_zone_data: ['{"compute_zone": "nova"}', '{}'],
  project_id: [OWN],
  tenant_id: [OWN],
})

/** Parents for new objects, so that the objects that paths name stay deletable. */
async function spareFor(api: TestApi, { lb }: World): Promise<Spare> {
  const make = async (path: string, key: string, body: object) =>
    idIn(await api.ask('POST', `/v2/lbaas/${path}`, { [key]: body }, tokenOf('admin')), key)
  const profile = { name: 'spare', provider_name: 'amphora' }
  const data = { availability_zone_data: '{}' }
  const flavorProfile = await make('flavorprofiles', 'flavorprofile', { ...profile, flavor_data: '{}' })
  const zoneProfile = await make('availabilityzoneprofiles', 'availability_zone_profile', { ...profile, ...data })
  const zone = { name: zoneProfile, availability_zone_profile_id: zoneProfile }
  await make('availabilityzones', 'availability_zone', zone)
  return {
    pool: await make('pools', 'pool', { loadbalancer_id: lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }),
    flavorProfile,
    flavor: await make('flavors', 'flavor', { name: flavorProfile, flavor_profile_id: flavorProfile }),
    zoneProfile,
    zone: zone.name,
  }
}

/** What a path names: mostly existing objects. */
function pathOf(route: Route, world: World): fc.Arbitrary<string> {
  const pattern = route.split(' ')[1] ?? ''
  const present: Readonly<Record<string, string>> = {
    loadbalancers: world.lb,
    listeners: world.listener,
    healthmonitors: world.monitor,
    l7policies: world.policy,
    amphorae: world.amphora,
    flavors: world.flavor,
    flavorprofiles: world.flavorProfile,
    availabilityzones: world.zoneProfile,
    availabilityzoneprofiles: world.zoneProfile,
    members: world.member,
    rules: world.rule,
    pools: world.pool,
    quotas: OWN,
    providers: 'amphora',
  }
  const segments = pattern.split('/').map((segment, index, all) => {
    if (!segment.startsWith(':')) return fc.constant(segment)
    const other = anyText({ minLength: 1, maxLength: 40 }).map(text => encodeURIComponent(wellFormed(text)))
    return fc.oneof(
      { weight: 8, arbitrary: fc.constant(present[all[index - 1] ?? ''] ?? '') },
      { weight: 1, arbitrary: fc.uuid() },
      { weight: 1, arbitrary: fc.oneof(other, fc.constantFrom('%E0%A4%A', '%00', '..%2f..', '%2e%2e')) },
    )
  })
  return fc.tuple(...segments).map(parts => `/v2${parts.join('/')}`)
}

function queryOf(route: Route): fc.Arbitrary<string> {
  const group = route.split('/').findLast(segment => RESOURCES[segment] !== undefined) ?? ''
  const names = [
    ...Object.keys(RESOURCES[group]?.resource.attributes ?? {}),
    ...['sort', 'sort_key', 'sort_dir', 'limit', 'marker', 'page_reverse', 'fields'],
    ...['tags', 'tags-any', 'not-tags', 'not-tags-any', 'cascade', 'additive_only'],
  ]
  const name = fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...names) }, { weight: 1, arbitrary: fc.string() })
  const samples = [
    '1',
    'true',
    'name:desc',
    'id',
    '-1',
    '99999999999999999999',
    '1e9',
    SUBNET,
    '2026-01-01T00:00:00',
    "'; --",
  ]
  const value = fc.oneof(anyText(), fc.constantFrom(...samples, '2026-02-31T25:61:61', '%_\\'))
  const given = fc
    .array(fc.tuple(name, value), { minLength: 1, maxLength: route.startsWith('GET') ? 4 : 1 })
    .map(pairs => pairs.map(([key, text]) => [key, text].map(wellFormed).map(encodeURIComponent).join('=')).join('&'))
  const isList = loadBalancerRoutes
    .get(route)
    ?.parameters?.some(given => '$ref' in given && given.$ref.endsWith('/limit'))
  return fc.oneof(
    { weight: isList ? 1 : 6, arbitrary: fc.constant('') },
    { weight: 3, arbitrary: given },
    { weight: route.startsWith('DELETE') ? 3 : 0, arbitrary: fc.constant('cascade=true') },
  )
}

/** Header values that HTTP can carry. */
const headerText = fc.stringMatching(/^[!-~]([ -~\xa1-\xff]{0,20}[!-~])?$/)

const IDEMPOTENCY_KEY = fc.oneof(
  { weight: 30, arbitrary: fc.uuid() },
  { weight: 1, arbitrary: fc.constantFrom('"k"', 'k', '""') },
  { weight: 1, arbitrary: headerText },
)

const headersOf = (route: Route): fc.Arbitrary<Record<string, string>> =>
  fc.record(
    {
      ...(route.startsWith('POST') ? { 'Idempotency-Key': IDEMPOTENCY_KEY } : {}),
      'X-Openstack-Request-Id': headerText,
      Accept: fc.constantFrom('*/*', 'application/json', 'text/html, */*;q=0.1', 'nonsense'),
    },
    { requiredKeys: [] },
  )

function bodyOf(route: Route, known: ReturnType<typeof knownIn>): fc.Arbitrary<unknown> {
  const request = formOf(route)
  if (request === undefined)
    return fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fc.jsonValue() })
  const broken = anyText({ minLength: 1 }).map(wellFormed)
  return fc.oneof(
    { weight: 10, arbitrary: arbitraryOf(request, known, components.schemas) },
    { weight: 1, arbitrary: fc.jsonValue() },
    { weight: 1, arbitrary: broken },
  )
}

const fault = z.strictObject({
  faultcode: z.enum(['Client', 'Server']),
  faultstring: z.string().min(1),
  debuginfo: z.null(),
})
const routed = z.strictObject({ ...fault.shape, code: z.int(), title: z.string(), description: z.string() })
const refusal = z.union([fault, routed])

const runsOf = (route: Route): number =>
  route === 'POST /lbaas/loadbalancers' ? 150 : formOf(route) === undefined ? 30 : 60

/** Deletions of objects and of their parents run last, so that the other routes find something. */
const LATE: readonly string[] = [
  ...['PUT /lbaas/pools/:pool/members', 'DELETE /lbaas/l7policies/:policy/rules/:id', 'DELETE /lbaas/l7policies/:id'],
  ...['DELETE /lbaas/pools/:pool/members/:id', 'DELETE /lbaas/healthmonitors/:id', 'DELETE /lbaas/listeners/:id'],
  ...['DELETE /lbaas/pools/:id', 'DELETE /lbaas/flavors/:id', 'DELETE /lbaas/flavorprofiles/:id'],
  ...['DELETE /lbaas/availabilityzones/:name', 'DELETE /lbaas/availabilityzoneprofiles/:id'],
  ...['DELETE /octavia/amphorae/:id', 'DELETE /lbaas/quotas/:project', 'DELETE /lbaas/loadbalancers/:id'],
]

t.test('any input gets an answer in the API’s shape, never an unexpected error', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const routes = [...loadBalancerRoutes.keys()].sort((a, b) => LATE.indexOf(a) - LATE.indexOf(b))
  const tally = new Map<number, number>()
  const succeeded = new Set<Route>()

  const check = async (
    method: string,
    path: string,
    body?: unknown,
    token?: string,
    headers?: Record<string, string>,
  ) => {
    const reply = await api.ask(method, path, body, token, headers)
    tally.set(reply.status, (tally.get(reply.status) ?? 0) + 1)
    if (reply.status < 400) return true
    const request = `${method} ${path} ${JSON.stringify(headers)} ${JSON.stringify(body)}`
    if (reply.status >= 500 && reply.status !== 501) throw new Error(`${request}: ${reply.status} ${reply.text}`)
    if (!refusal.safeParse(reply.body).success) throw new Error(`${request}: ${reply.text}`)
    return false
  }

  for (const provider of OFFERED.providers) {
    const world = await makeWorld(api, OWN, provider)
    await api.database('amphora').where({ id: world.amphora }).update({ status: 'ERROR' })
    await api
      .database('listener_statistics')
      .insert({ listener_id: world.listener, amphora_id: world.amphora, epoch: 'e' })
    const known = knownIn(world, provider, await spareFor(api, world))
    for (const route of routes) {
      await t.test(`${provider}: ${route}`, async () => {
        const method = route.split(' ')[0] ?? ''
        const request = fc.record({
          path: pathOf(route, world),
          query: queryOf(route),
          headers: headersOf(route),
          body: method === 'GET' ? fc.constant(undefined) : bodyOf(route, known),
          token: fc.constantFrom(tokenOf('admin'), tokenOf('admin'), tokenOf('member')),
        })
        await attemptUntilDone(
          request,
          async ({ path, query, headers, body, token }) => {
            const url = query === '' ? path : `${path}?${query}`
            if (await check(method, url, body, token, headers)) succeeded.add(route)
          },
          () => provider !== OFFERED.providers.at(-1) || succeeded.has(route),
          { numRuns: runsOf(route) },
        )
      })
    }
  }
  await t.test('paths without a route', async () => {
    await fc.assert(
      fc.asyncProperty(fc.webPath(), async path => void (await check('GET', `/v2/lbaas${path}`))),
      { numRuns: 40 },
    )
    for (const path of ['//', '/v2//lbaas', '/v2/lbaas/pools/%E0%A4%A', '/v2/lbaas/pools/..%2f..'])
      await check('GET', path)
  })

  await t.test('HAProxy accepts the configuration of everything the API accepted', async t => {
    const directory = mkdtempSync(join(tmpdir(), 'krater-any-input-'))
    t.teardown(() => rmSync(directory, { recursive: true }))
    // random deletions may leave every load balancer without a listener
    await makeWorld(api, FOREIGN, 'amphora')
    const parts: HaproxyPart[] = []
    for (const { id } of await api.database('load_balancer').where({ provider: 'amphora' })) {
      const tree = await readTree(api.database, id)
      if (tree === null) continue
      const part = haproxyFor(tree)
      if (part !== null) parts.push(part)
    }
    t.ok(parts.length > 0, `${parts.length} load balancers with listeners`)
    const file = asOneFile(parts)
    t.same(await checkWithHaproxy(directory, file.text, file), { code: 0, complaints: [] })
  })

  t.same(
    routes.filter(route => !succeeded.has(route)),
    [],
    'every route succeeds at least once',
  )
  t.ok((tally.get(201) ?? 0) > 50 && (tally.get(400) ?? 0) > 100, `${JSON.stringify([...tally])}`)
})
