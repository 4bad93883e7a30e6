import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { z } from 'zod'
import { ROUTE_OPERATIONS, type Route } from '../../controller/key-manager/rights.js'
import { wellFormed } from '../support/arbitrary-input.js'
import { startTestKeyManager } from '../support/key-manager-api.js'
import { tokenOf } from '../support/load-balancer-api.js'

const FAMILIES = /\/v1\/(containers|quotas|project-quotas|transport_keys|secrets\/:id\/acl)/

/** What goes comes late, so that the others find something. */
const METHODS: readonly string[] = ['GET', 'PUT', 'PATCH', 'POST', 'DELETE']
const LATEST: readonly string[] = ['DELETE /v1/containers/:id']
const placeOf = (route: Route) => METHODS.indexOf(route.split(' ')[0] ?? '') + LATEST.indexOf(route)
const ROUTES = (Object.keys(ROUTE_OPERATIONS) as Route[])
  .filter(route => FAMILIES.test(route))
  .sort((a, b) => placeOf(a) - placeOf(b))

const api = await startTestKeyManager()
t.teardown(api.stop)
const roles = ['member', 'admin', 'creator', 'observer', 'audit', 'key-manager:service-admin', 'reader']
const everyRole = tokenOf(roles.join(','))
const made = async (path: string, body: unknown) => {
  const reply = await api.ask('POST', path, body, { token: everyRole })
  return String(Object.values(reply.body)[0])
}
const secrets = await Promise.all(Array.from({ length: 4 }, () => api.store({}, everyRole)))
const secretRefs = secrets.map(id => `${api.url}/v1/secrets/${id}`)
const secret_refs = secretRefs.slice(1, 2).map(secret_ref => ({ secret_ref }))
const containers = await Promise.all(
  Array.from({ length: 3 }, () => made('/v1/containers', { type: 'generic', name: 'c', secret_refs })),
)
const container = String(containers[0]).slice(-36)
const transportKey = (await made('/v1/transport_keys', { plugin_name: 'p', transport_key: 'k' })).slice(-36)
const consumer = { name: 'lb', URL: 'https://a.example' }
const registered = await api.ask('POST', `/v1/containers/${container}/consumers`, consumer, { token: everyRole })
const consumerId = String(registered.headers.get('location')).slice(-36)

const OTHER_PROJECT = 'another project'
await api.ask('PUT', `/v1/project-quotas/${OTHER_PROJECT}`, { project_quotas: {} }, { token: everyRole })

const text = fc.string({ unit: 'binary', maxLength: 40 }).map(wellFormed)
const longText = fc.constantFrom('', ' ', '\0', 'x'.repeat(256), 'x'.repeat(20_000), '%', '\\', "'; --", '\ud800', '😀')

/** Mostly the value meant, now and then anything. */
const mostly = (value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 30, arbitrary: value },
    { weight: 1, arbitrary: fc.jsonValue() },
    { weight: 1, arbitrary: longText },
    { weight: 1, arbitrary: fc.constant(null) },
  )

const record = (fields: Record<string, fc.Arbitrary<unknown>>, requiredKeys: string[] = []) =>
  fc.record(Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, mostly(value)])), { requiredKeys })

const name = fc.oneof(text, fc.constantFrom('a', 'b', 'private_key', 'public_key', 'certificate', 'intermediates'))
const secretRef = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...secretRefs) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(`${api.url}/`, `${api.url}/v1/secrets/${randomUUID()}`, 'x', '//', 'http://['),
  },
)
const reference = record({ name, secret_ref: secretRef }, ['secret_ref'])
const acl = record({
  read: record({ users: fc.array(mostly(text), { maxLength: 3 }), 'project-access': fc.boolean() }),
})
const limit = fc.oneof(fc.integer(), fc.constantFrom(null, -1, 0, 1e20, 1.5))
const consumers = fc.oneof(fc.constant(consumer), record({ name: text, URL: text }, ['name', 'URL']))

const removed = fc.oneof(
  fc.constantFrom(...secretRefs).map(secret_ref => ({ secret_ref })),
  reference,
)

const BODIES: readonly [RegExp, fc.Arbitrary<unknown>][] = [
  [
    / \/v1\/containers$/,
    record(
      {
        type: fc.constantFrom('generic', 'rsa', 'certificate'),
        name,
        secret_refs: fc.array(reference, { maxLength: 3 }),
      },
      ['type'],
    ),
  ],
  [/^POST .*\/secrets$/, reference],
  [/^DELETE .*\/secrets$/, removed],
  [/\/consumers$/, consumers],
  [/\/acl$/, acl],
  [
    /project-quotas/,
    record(
      { project_quotas: record({ secrets: limit, orders: limit, containers: limit, consumers: limit, cas: limit }) },
      ['project_quotas'],
    ),
  ],
  [/transport_keys/, record({ plugin_name: text, transport_key: text }, ['plugin_name', 'transport_key'])],
]

function bodyOf(route: Route): fc.Arbitrary<{ body?: unknown; raw?: string }> {
  const [, good] = BODIES.find(([pattern]) => pattern.test(route)) ?? [null, fc.constant(undefined)]
  return fc.oneof(
    { weight: 14, arbitrary: good.map(body => ({ body })) },
    { weight: 1, arbitrary: fc.jsonValue().map(body => ({ body })) },
    { weight: 1, arbitrary: fc.string({ unit: 'binary' }).map(raw => ({ raw: wellFormed(raw) })) },
    { weight: 1, arbitrary: fc.constantFrom('', '{', '"\\ud800"', `${'['.repeat(5000)}`).map(raw => ({ raw })) },
  )
}

function pathOf(route: Route): fc.Arbitrary<string> {
  const present: Readonly<Record<string, readonly string[]>> = {
    ':consumer': [consumerId],
    ':project': [OTHER_PROJECT],
    secrets: secrets.slice(0, 2),
    containers: [container, ...containers.slice(1).map(ref => ref.slice(-36))],
    transport_keys: [transportKey],
  }
  const segments = (route.split(' ')[1] ?? '').split('/').map((segment, index, all) => {
    if (!segment.startsWith(':')) return fc.constant(segment)
    const known = present[segment] ?? present[all[index - 1] ?? ''] ?? []
    return fc.oneof(
      { weight: 12, arbitrary: fc.constantFrom(...known.map(encodeURIComponent)) },
      { weight: 1, arbitrary: fc.uuid({ version: 4 }) },
      { weight: 1, arbitrary: fc.string({ unit: 'binary', minLength: 1 }).map(s => encodeURIComponent(wellFormed(s))) },
      { weight: 1, arbitrary: fc.constantFrom('%E0%A4%A', '%00', '..%2f..', '%2e%2e', 'x'.repeat(300)) },
    )
  })
  return fc.tuple(...segments).map(parts => parts.join('/'))
}

const query = fc
  .array(
    fc.tuple(
      fc.constantFrom('name', 'type', 'limit', 'offset', 'plugin_name', 'x'),
      fc.oneof(
        text,
        fc.constantFrom(
          'x'.repeat(300),
          '\0',
          '\ud800',
          '%_%',
          '1',
          '-1',
          '99999999999999999999',
          '1e9',
          'generic',
          '\\',
        ),
      ),
    ),
    { maxLength: 3 },
  )
  .map(pairs => new URLSearchParams(pairs.map(([key, value]): [string, string] => [key, wellFormed(value)])).toString())

const headers = fc.record(
  {
    Accept: fc.constantFrom('*/*', 'application/json', 'text/html, */*;q=0.1', 'text/html', 'nonsense'),
    'Content-Type': fc.constantFrom(
      'application/json',
      'application/json; charset=utf-8',
      'text/plain',
      'nonsense',
      '',
    ),
    'OpenStack-API-Version': fc.constantFrom(
      'key-manager 1.1',
      'key-manager latest',
      'key-manager 9.9',
      'x',
      'key-manager y',
    ),
  },
  { requiredKeys: [] },
)

const fault = z.strictObject({ code: z.int(), title: z.string().min(1), description: z.string().min(1).nullable() })
const versionFault = z.strictObject({ code: z.string(), title: z.string(), message: z.string() })
const refusal = z.union([fault, versionFault])

/** Requests that do their work for sure, where chance seldom meets all that it takes. */
const CERTAIN: Readonly<Partial<Record<Route, { path: string; sent: { body?: unknown } }>>> = {
  'GET /v1/containers/:id/consumers/:consumer': {
    path: `/v1/containers/${container}/consumers/${consumerId}`,
    sent: {},
  },
  'DELETE /v1/containers/:id/consumers': { path: `/v1/containers/${container}/consumers`, sent: { body: consumer } },
  'DELETE /v1/containers/:id/secrets': {
    path: `/v1/containers/${container}/secrets`,
    sent: { body: secret_refs[0] },
  },
}

const succeeded = new Set<Route>()
const tally = new Map<number, number>()

for (const route of ROUTES) {
  t.test(route, async t => {
    const method = route.split(' ')[0] ?? ''
    const certain = CERTAIN[route]
    const request = fc.record({
      path: pathOf(route),
      query: fc.oneof(
        { weight: method === 'GET' ? 1 : 6, arbitrary: fc.constant('') },
        { weight: 1, arbitrary: query },
      ),
      headers: fc.oneof({ weight: 4, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: headers }),
      sent: method === 'GET' ? fc.constant({}) : bodyOf(route),
      token: fc.constantFrom(
        everyRole,
        everyRole,
        everyRole,
        tokenOf('member'),
        tokenOf('nobody'),
        tokenOf('member', 'x'),
      ),
    })
    await fc.assert(
      fc.asyncProperty(request, async ({ path, query, headers, sent, token }) => {
        const { body, raw }: { body?: unknown; raw?: string } = sent
        const url = query === '' ? path : `${path}?${query}`
        const reply = await api.ask(method, url, body, { token, headers, ...(raw === undefined ? {} : { raw }) })
        tally.set(reply.status, (tally.get(reply.status) ?? 0) + 1)
        if (reply.status < 300) succeeded.add(route)
        else if (reply.status >= 500 || !refusal.safeParse(reply.body).success) {
          throw new Error(`${method} ${url}: ${reply.status} ${reply.text.slice(0, 500)}`)
        }
      }),
      {
        numRuns: method === 'GET' ? 20 : 35,
        examples: certain === undefined ? [] : [[{ ...certain, query: '', headers: {}, token: everyRole }]],
      },
    )
    t.pass(route)
  })
}

t.test('every route has done its work at least once', async t => {
  t.ok(ROUTES.length > 25, `${ROUTES.length} routes`)
  t.same(
    ROUTES.filter(route => !succeeded.has(route)),
    [],
  )
  t.ok((tally.get(201) ?? 0) > 3 && (tally.get(400) ?? 0) > 30, JSON.stringify([...tally]))
})
