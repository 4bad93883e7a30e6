import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { A, ADMIN, B, isFault, PLURALS, type Reply, startNetworkApi } from '../../support/clients/network-api.js'
import { routesOf } from '../../support/clients/routes.js'
import { anyText } from '../../support/inputs/any-text.js'

const api = await startNetworkApi()
t.teardown(api.stop)
const { app, db, call, create, list } = api

/** Replaces lone surrogates, which encodeURIComponent refuses. */
const wellFormed = (text: string) => Buffer.from(text, 'utf8').toString('utf8')

t.test('no route shows or changes another project’s objects', async t => {
  const outside = await create('network', { 'router:external': true }, ADMIN)
  await create('subnet', { network_id: outside.id, cidr: '198.51.100.0/24' }, ADMIN)
  const network = await create('network', { name: 'mine' })
  const subnet = await create('subnet', { network_id: network.id, cidr: '10.40.0.0/24' })
  const port = await create('port', { network_id: network.id })
  const router = await create('router', { external_gateway_info: { network_id: outside.id } })
  await call(`PUT /v2.0/routers/${router.id}/add_router_interface`, A, { subnet_id: subnet.id })
  const floating = await create('floatingip', { floating_network_id: outside.id, port_id: port.id })
  const group = await create('security_group', { name: 'mine' })
  const rule = await create('security_group_rule', { security_group_id: group.id, direction: 'ingress' })
  const theirs = await create('router', {}, B)
  const theirGroup = await create('security_group', {}, B)
  await call(`PUT /v2.0/networks/${network.id}/tags`, A, { tags: ['t'] })
  const idOf: Readonly<Record<string, string>> = {
    networks: network.id,
    subnets: subnet.id,
    ports: port.id,
    routers: router.id,
    floatingips: floating.id,
    'security-groups': group.id,
    'security-group-rules': rule.id,
  }

  /**
   * The status that project B gets for an object of project A or for a body that names one. A route without a
   * row fails the test.
   */
  const HIDDEN = 404
  const table: Record<string, { body?: unknown; expect: number | 'no trace' }> = {
    'GET /': { expect: 'no trace' },
    'GET /openapi.json': { expect: 'no trace' },
    'GET /v2.0': { expect: 'no trace' },
    'GET /v2.0/extensions': { expect: 'no trace' },
    'GET /v2.0/extensions/:alias': { expect: HIDDEN },
    'GET /v2.0/quotas': { expect: 403 },
    'GET /v2.0/quotas/:project': { expect: 403 },
    'GET /v2.0/quotas/:project/default': { expect: 403 },
    'GET /v2.0/quotas/:project/details': { expect: 403 },
    'GET /v2.0/quotas/:project/details.json': { expect: 403 },
    'PUT /v2.0/quotas/:project': { body: { quota: { port: -1 } }, expect: 403 },
    'DELETE /v2.0/quotas/:project': { expect: 403 },
    'POST /v2.0/networks': { body: { network: { project_id: 'a' } }, expect: 403 },
    'POST /v2.0/subnets': { body: { subnet: { network_id: network.id, cidr: '10.41.0.0/24' } }, expect: HIDDEN },
    'POST /v2.0/ports': { body: { port: { network_id: network.id } }, expect: HIDDEN },
    'POST /v2.0/routers': {
      body: { router: { external_gateway_info: { network_id: network.id } } },
      expect: HIDDEN,
    },
    'POST /v2.0/floatingips': {
      body: { floatingip: { floating_network_id: outside.id, port_id: port.id } },
      expect: HIDDEN,
    },
    'POST /v2.0/security-groups': { body: { security_group: { project_id: 'a' } }, expect: 403 },
    'POST /v2.0/security-group-rules': {
      body: { security_group_rule: { security_group_id: group.id, direction: 'egress', protocol: 'tcp' } },
      expect: HIDDEN,
    },
    'GET /v2.0/security-group-rules': { expect: 'no trace' },
    'GET /v2.0/security-group-rules/:id': { expect: HIDDEN },
    'DELETE /v2.0/security-group-rules/:id': { expect: HIDDEN },
  }
  for (const action of ['add_router_interface', 'remove_router_interface']) {
    table[`PUT /v2.0/routers/:id/${action}`] = { body: { subnet_id: subnet.id }, expect: HIDDEN }
  }
  for (const action of ['add_extraroutes', 'remove_extraroutes']) {
    table[`PUT /v2.0/routers/:id/${action}`] = { body: { router: { routes: [] } }, expect: HIDDEN }
  }
  for (const [plural, singular] of [
    ['networks', 'network'],
    ['subnets', 'subnet'],
    ['ports', 'port'],
    ['routers', 'router'],
    ['floatingips', 'floatingip'],
    ['security-groups', 'security_group'],
  ] as const) {
    table[`GET /v2.0/${plural}`] = { expect: 'no trace' }
    table[`GET /v2.0/${plural}/:id`] = { expect: HIDDEN }
    table[`PUT /v2.0/${plural}/:id`] = { body: { [singular]: { description: 'stolen' } }, expect: HIDDEN }
    table[`DELETE /v2.0/${plural}/:id`] = { expect: HIDDEN }
    table[`GET /v2.0/${plural}/:id/tags`] = { expect: HIDDEN }
    table[`PUT /v2.0/${plural}/:id/tags`] = { body: { tags: ['stolen'] }, expect: HIDDEN }
    table[`DELETE /v2.0/${plural}/:id/tags`] = { expect: HIDDEN }
    for (const method of ['GET', 'PUT', 'DELETE']) table[`${method} /v2.0/${plural}/:id/tags/:tag`] = { expect: HIDDEN }
  }
  const others = [
    'agents',
    'availability_zones',
    'qos/policies',
    'subnetpools',
    'address-scopes',
    'address-groups',
    'network-ip-availabilities',
    'trunks',
    'rbac-policies',
    'segments',
    'flavors',
    'service-providers',
  ]
  for (const path of others) {
    table[`GET /v2.0/${path}`] = { expect: 'no trace' }
    table[`GET /v2.0/${path}/:id`] = { expect: HIDDEN }
    table[`POST /v2.0/${path}`] = { body: {}, expect: 501 }
  }
  for (const path of ['', '/servers', '/servers/detail', '/limits', '/os-simple-tenant-usage/:project']) {
    table[`GET /compute/v2.1${path}`] = { expect: 'no trace' }
  }

  // The documentation page is the same for everyone.
  const served = routesOf(app).filter(({ path }) => path !== '/docs')
  const routes = served.map(({ method, path }) => `${method} ${path}`)
  t.strictSame([...new Set(routes)].sort(), Object.keys(table).sort(), 'every route has a row')

  const TABLES = ['network', 'subnet', 'port', 'router', 'floating_ip', 'security_group', 'security_group_rule']
  const snapshot = async () => {
    const columns = TABLES.map(table => `(SELECT json_agg(r) FROM ${table} r WHERE project_id = 'a') AS ${table}`)
    const { rows } = await db.raw(
      `SELECT ${columns.join(', ')}, (SELECT json_agg(r) FROM router_port r) AS legs,
              (SELECT json_agg(r) FROM port_security_group r) AS groups`,
    )
    return rows
  }
  const before = await snapshot()
  for (const [route, { body, expect }] of Object.entries(table)) {
    const plural = /^\w+ \/v2\.0\/([\w-]+)/.exec(route)?.[1] ?? ''
    const path = route
      .replace(':id', idOf[plural] ?? randomUUID())
      .replace(':tag', 't')
      .replace(':project', 'a')
      .replace(':alias', 'nothing')
    for (const token of [B, 'b/reader', '/member']) {
      const reply = await call(path, token, body)
      if (expect === 'no trace') {
        t.equal(reply.status, 200, route)
        const text = JSON.stringify(reply.body)
        t.notOk(
          Object.values(idOf).some(id => text.includes(id)),
          `${route} as ${token}`,
        )
      } else {
        const readerMayNot = reply.status === 403 && token === 'b/reader'
        const hasNoProject = reply.status === 400 && token === '/member' && route.startsWith('POST')
        t.ok(reply.status === expect || readerMayNot || hasNoProject, `${route} as ${token}: ${reply.status}`)
      }
    }
  }
  t.strictSame(await snapshot(), before, 'no refused request changes anything')

  await t.test('an object of one’s own never refers to one of another project', async t => {
    const own = await create('network', {}, B)
    await create('subnet', { network_id: own.id, cidr: '10.40.0.0/24' }, B)
    const ownPort = await create('port', { network_id: own.id }, B)
    const floatingOfB = await create('floatingip', { floating_network_id: outside.id }, B)
    const references: readonly (readonly [operation: string, body: unknown])[] = [
      [`PUT /v2.0/routers/${theirs.id}`, { router: { external_gateway_info: { network_id: network.id } } }],
      [`PUT /v2.0/routers/${theirs.id}/add_router_interface`, { subnet_id: subnet.id }],
      [`PUT /v2.0/routers/${theirs.id}/add_router_interface`, { port_id: port.id }],
      [`PUT /v2.0/routers/${theirs.id}/remove_router_interface`, { subnet_id: subnet.id }],
      [`PUT /v2.0/routers/${theirs.id}/remove_router_interface`, { port_id: port.id }],
      [`PUT /v2.0/floatingips/${floatingOfB.id}`, { floatingip: { port_id: port.id } }],
      ['POST /v2.0/floatingips', { floatingip: { floating_network_id: network.id } }],
      ['POST /v2.0/ports', { port: { network_id: own.id, security_groups: [group.id] } }],
      [`PUT /v2.0/ports/${ownPort.id}`, { port: { security_groups: [theirGroup.id, group.id] } }],
      [
        'POST /v2.0/security-group-rules',
        {
          security_group_rule: {
            security_group_id: theirGroup.id,
            direction: 'ingress',
            remote_group_id: group.id,
          },
        },
      ],
    ]
    const untouched = await snapshot()
    for (const [operation, body] of references) {
      t.equal((await call(operation, B, body)).status, HIDDEN, `${operation} ${JSON.stringify(body)}`)
    }
    t.strictSame(await snapshot(), untouched)
    const filters = [
      `ports?security_groups=${group.id}`,
      `ports?device_id=${router.id}`,
      `floatingips?port_id=${port.id}`,
      `floatingips?router_id=${router.id}`,
      `security-group-rules?security_group_id=${group.id}`,
      `security-group-rules?remote_group_id=${group.id}`,
      `routers?id=${router.id}`,
      `security-groups?name=mine`,
    ]
    for (const filter of filters) {
      const [plural = '', query = ''] = filter.split('?')
      t.strictSame(await list(plural, query, B), [], filter)
      for (const id of Object.values(idOf)) {
        t.equal((await call(`GET /v2.0/${plural}?marker=${id}`, B)).status, HIDDEN, `${plural} after ${id}`)
      }
    }
  })
})

t.test('hostile requests get a fault, never a crash', async t => {
  const network = await create('network', {})
  const subnet = await create('subnet', { network_id: network.id, cidr: '10.50.0.0/24' })
  const port = await create('port', { network_id: network.id })
  const router = await create('router', {})
  const outside = await create('network', { 'router:external': true }, ADMIN)
  await create('subnet', { network_id: outside.id, cidr: '203.0.113.0/24' }, ADMIN)
  const floatingip = await create('floatingip', { floating_network_id: outside.id })
  const security_group = await create('security_group', {})
  const idOf = {
    network: network.id,
    subnet: subnet.id,
    port: port.id,
    router: router.id,
    floatingip: floatingip.id,
    security_group: security_group.id,
    security_group_rule: security_group.id,
  }
  const required: Readonly<Record<string, object>> = {
    subnet: { network_id: network.id, cidr: '10.51.0.0/24' },
    port: { network_id: network.id },
    floatingip: { floating_network_id: outside.id },
    security_group_rule: { security_group_id: security_group.id, direction: 'ingress' },
  }
  const kinds = Object.keys(idOf) as (keyof typeof idOf)[]
  const attributes = [
    'name',
    'description',
    'admin_state_up',
    'shared',
    'mtu',
    'network_id',
    'cidr',
    'ip_version',
    'gateway_ip',
    'allocation_pools',
    'host_routes',
    'dns_nameservers',
    'fixed_ips',
    'mac_address',
    'device_id',
    'device_owner',
    'security_groups',
    'allowed_address_pairs',
    'port_security_enabled',
    'external_gateway_info',
    'routes',
    'floating_network_id',
    'port_id',
    'fixed_ip_address',
    'stateful',
    'direction',
    'ethertype',
    'protocol',
    'port_range_min',
    'port_range_max',
    'remote_ip_prefix',
    'remote_group_id',
    'provider:network_type',
    '__proto__',
    'tenant_id',
    'id',
  ]
  const filters = [
    ...attributes,
    'fields',
    'sort_key',
    'sort_dir',
    'limit',
    'marker',
    'page_reverse',
    'tags',
    'not-tags-any',
    'status',
    'router:external',
    'constructor',
    'ip_address',
    'subnet_id',
  ]
  const text = fc.oneof(
    anyText({ maxLength: 300 }),
    fc.constantFrom(
      '',
      '\0',
      "'; DROP TABLE port; --",
      '?',
      ':id',
      '10.50.0.9',
      'fd00::1%eth0',
      '10.50.0.0/33',
      '999999999999',
      'NaN',
      '\ud800',
      network.id,
      subnet.id,
      'subnet_id=',
      'ip_address=::',
      'true',
      'name',
    ),
  )
  const value: fc.Arbitrary<unknown> = fc.oneof(
    text,
    fc.integer(),
    fc.double(),
    fc.boolean(),
    fc.constant(null),
    fc.array(
      fc.oneof(
        text,
        fc.dictionary(
          fc.constantFrom('start', 'end', 'subnet_id', 'ip_address', 'mac_address', 'destination', 'nexthop'),
          text,
        ),
      ),
      { maxLength: 4 },
    ),
    fc.jsonValue(),
  )
  const check = (reply: Reply) => {
    if (reply.status >= 500) throw new Error(JSON.stringify(reply.body))
    const { NeutronError } = reply.body as { NeutronError?: { type: string; message: string; detail: string } }
    if (reply.status >= 400 && (!NeutronError?.type || typeof NeutronError.message !== 'string')) {
      throw new Error(`no fault in ${JSON.stringify(reply.body)}`)
    }
    if (/Invalid input: expected|Too (big|small): /.test(NeutronError?.message ?? '')) {
      throw new Error(`an unclear refusal: ${NeutronError?.message}`)
    }
  }

  await t.test('bodies', async () => {
    const body = fc.record({
      kind: fc.constantFrom(...kinds),
      update: fc.boolean(),
      seed: fc.boolean(),
      attributes: fc.dictionary(fc.constantFrom(...attributes), value, { maxKeys: 4 }),
    })
    await fc.assert(
      fc.asyncProperty(body, async ({ kind, update, seed, attributes }) => {
        const path = `/v2.0/${PLURALS[kind]}`
        const base = seed && !update ? required[kind] : {}
        check(
          await call(update ? `PUT ${path}/${idOf[kind]}` : `POST ${path}`, A, { [kind]: { ...base, ...attributes } }),
        )
      }),
      { numRuns: 250 },
    )
  })

  await t.test('query strings', async () => {
    const query = fc.array(fc.tuple(fc.constantFrom(...filters), text), { minLength: 1, maxLength: 4 })
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...Object.values(PLURALS)), query, async (plural, pairs) => {
        const search = pairs.map(
          ([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(wellFormed(value))}`,
        )
        check(await call(`GET /v2.0/${plural}?${search.join('&')}`, A))
      }),
      { numRuns: 150 },
    )
  })

  await t.test('malformed paths and bodies', async t => {
    for (const path of ['%00', '%E0%A4%A', '..%2f..', "x'y", 'a'.repeat(3000), '%ff', '☃']) {
      for (const method of ['GET', 'DELETE']) check(await call(`${method} /v2.0/ports/${path}`, A))
    }
    for (const body of [
      '',
      '{',
      '[]',
      'null',
      '"x"',
      '5',
      '{"port":null}',
      '{"port":[]}',
      '{"ports":[]}',
      '{"ports":[null]}',
      '{"port":{"network_id":{"a":1}}}',
      `{"port":{"network_id":${'['.repeat(50_000)}${']'.repeat(50_000)}}}`,
      `{"port":{"name":[${'"",'.repeat(300_000)}""]}}`,
      '{"port":{"name":"\\ud800"}}',
    ]) {
      const reply = await call('POST /v2.0/ports', A, body)
      check(reply)
      t.equal(reply.status, 400, body.slice(0, 100))
    }
    isFault(
      t,
      await call('POST /v2.0/ports', A, JSON.stringify({ port: { name: 'x'.repeat(2 ** 20) } })),
      413,
      'HTTPRequestEntityTooLarge',
    )
  })
})
