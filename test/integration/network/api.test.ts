import { randomUUID } from 'node:crypto'
import t from 'tap'
import { bootstrapNetworks } from '../../../controller/network/bootstrap.js'
import { A, ADMIN, B, type Item, ids, isFault, READER, startNetworkApi } from '../../support/clients/network-api.js'

const api = await startNetworkApi()
t.teardown(api.stop)
const { db, driver, call, create, list } = api

t.test('a request needs a valid token, a known path and an allowed method', async t => {
  const root = await call('GET /', null)
  t.match(root.body, {
    versions: [{ id: 'v2.0', status: 'CURRENT', links: [{ rel: 'self', href: `${api.url}/v2.0/` }] }],
  })
  for (const token of [null, 'nonsense']) {
    const reply = await call('GET /v2.0/networks', token)
    t.match(reply, { status: 401, body: { error: { code: 401, title: 'Unauthorized', message: String } } })
    t.equal(reply.headers.get('WWW-Authenticate'), 'Keystone uri="http://127.0.0.1:5000/v3"')
  }
  t.match((await call('GET /v2.0', A)).body, {
    resources: [{ name: 'network', collection: 'networks' }, {}, {}, {}, {}, {}, {}],
  })
  isFault(t, await call('GET /v2.0/nonsense', A), 404, 'HTTPNotFound')
  isFault(t, await call('PATCH /v2.0/networks', A), 405, 'HTTPMethodNotAllowed')
  for (const [path, message] of [
    ['subnetpools', /does not offer subnet pools\. .* cidr/],
    ['trunks', /^This networking service does not offer trunks\.$/],
  ] as const) {
    isFault(t, await call(`POST /v2.0/${path}`, A, {}), 501, 'HTTPNotImplemented', message)
    t.strictSame(Object.values((await call(`GET /v2.0/${path}`, A)).body), [[]], 'the list is empty')
  }
})

t.test('networks', async t => {
  const network = await create('network', { name: 'n1', description: 'first', admin_state_up: 'true', mtu: '1400' })
  t.match(network, {
    name: 'n1',
    description: 'first',
    project_id: 'a',
    tenant_id: 'a',
    admin_state_up: true,
    status: 'ACTIVE',
    shared: false,
    'router:external': false,
    mtu: 1400,
    subnets: [],
    tags: [],
    revision_number: 1,
    created_at: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/,
  })
  const updated = await call(`PUT /v2.0/networks/${network.id}`, A, { network: { name: 'n2', admin_state_up: false } })
  t.match(updated, { status: 200, body: { network: { name: 'n2', admin_state_up: false, revision_number: 2 } } })
  t.strictSame((await call(`GET /v2.0/networks/${network.id}?fields=id&fields=name`, A)).body, {
    network: { id: network.id, name: 'n2' },
  })

  await t.test('a member may not share networks or act for other projects; a reader may not write', async t => {
    for (const body of [{ shared: true }, { 'router:external': true }, { tenant_id: 'b' }, { project_id: 'b' }]) {
      isFault(t, await call('POST /v2.0/networks', A, { network: body }), 403, 'PolicyNotAuthorized')
    }
    isFault(
      t,
      await call(`PUT /v2.0/networks/${network.id}`, A, { network: { shared: true } }),
      403,
      'PolicyNotAuthorized',
    )
    isFault(t, await call('POST /v2.0/networks', READER, { network: {} }), 403, 'PolicyNotAuthorized')
    isFault(t, await call(`DELETE /v2.0/networks/${network.id}`, READER), 403, 'PolicyNotAuthorized')
    isFault(t, await call('POST /v2.0/networks', '/member', { network: {} }), 400, 'HTTPBadRequest')
    const forOther = await create('network', { tenant_id: 'b' }, ADMIN)
    t.equal(forOther.project_id, 'b')
  })

  await t.test('a shared network is usable by all, and stays shared while others use it', async t => {
    const shared = await create('network', { shared: true, 'router:external': true }, ADMIN)
    await create('subnet', { network_id: shared.id, cidr: '10.9.0.0/24' }, ADMIN)
    t.equal((await call(`GET /v2.0/networks/${shared.id}`, A)).status, 200)
    isFault(t, await call(`PUT /v2.0/networks/${shared.id}`, A, { network: { name: 'x' } }), 403, 'PolicyNotAuthorized')
    isFault(t, await call(`DELETE /v2.0/networks/${shared.id}`, A), 403, 'PolicyNotAuthorized')
    const port = await create('port', { network_id: shared.id })
    t.equal((await call(`GET /v2.0/ports/${port.id}`, B)).status, 404, "another project's port on it is hidden")
    const unshare = () => call(`PUT /v2.0/networks/${shared.id}`, ADMIN, { network: { shared: false } })
    isFault(t, await unshare(), 409, 'InvalidSharedSetting')
    await call(`DELETE /v2.0/ports/${port.id}`, A)
    t.equal((await unshare()).status, 200)
    t.equal((await call(`GET /v2.0/networks/${shared.id}`, A)).status, 200, 'an external network stays visible')
    isFault(t, await call('POST /v2.0/ports', A, { port: { network_id: shared.id } }), 403, 'PolicyNotAuthorized')
  })

  await t.test('a network in use cannot be deleted; deleting it deletes its subnets', async t => {
    const subnet = await create('subnet', { network_id: network.id, cidr: '10.9.1.0/24' })
    const port = await create('port', { network_id: network.id })
    isFault(t, await call(`DELETE /v2.0/networks/${network.id}`, A), 409, 'NetworkInUse', /ports still in use/)
    isFault(t, await call(`DELETE /v2.0/subnets/${subnet.id}`, A), 409, 'SubnetInUse', /have an IP allocation/)
    t.equal((await call(`DELETE /v2.0/ports/${port.id}`, A)).status, 204)
    t.equal((await call(`DELETE /v2.0/networks/${network.id}`, A)).status, 204)
    isFault(t, await call(`GET /v2.0/subnets/${subnet.id}`, A), 404, 'SubnetNotFound')
    isFault(
      t,
      await call(`DELETE /v2.0/networks/${network.id}`, A),
      404,
      'NetworkNotFound',
      `Network ${network.id} could not be found.`,
    )
  })

  await t.test('a bulk request creates all its networks or none', async t => {
    const made = await call('POST /v2.0/networks', A, { networks: [{ name: 'bulk1' }, { name: 'bulk2' }] })
    t.match(made, { status: 201, body: { networks: [{ name: 'bulk1' }, { name: 'bulk2' }] } })
    const half = await call('POST /v2.0/networks', A, { networks: [{ name: 'bulk3' }, { name: 5 }] })
    isFault(t, half, 400, 'HTTPBadRequest', 'Invalid input for name. Reason: 5 is not a valid string.')
    t.strictSame(await list('networks', 'name=bulk3'), [])
  })
})

t.test('subnets', async t => {
  const network = await create('network', {})
  const make = (body: object) => call('POST /v2.0/subnets', A, { subnet: { network_id: network.id, ...body } })

  const v4 = await create('subnet', { network_id: network.id, cidr: '10.10.0.0/24', ip_version: 4, name: 'v4' })
  t.match(v4, {
    name: 'v4',
    network_id: network.id,
    ip_version: 4,
    cidr: '10.10.0.0/24',
    gateway_ip: '10.10.0.1',
    allocation_pools: [{ start: '10.10.0.2', end: '10.10.0.254' }],
    enable_dhcp: true,
    dns_nameservers: [],
    host_routes: [],
    subnetpool_id: null,
  })
  const v6 = await create('subnet', {
    network_id: network.id,
    cidr: 'FD00:0:10::/64',
    ip_version: 6,
    ipv6_ra_mode: 'slaac',
  })
  t.match(v6, {
    cidr: 'fd00:0:10::/64',
    gateway_ip: 'fd00:0:10::1',
    allocation_pools: [{ start: 'fd00:0:10::2', end: 'fd00:0:10:0:ffff:ffff:ffff:ffff' }],
    ipv6_ra_mode: 'slaac',
  })
  t.strictSame((await list('networks', `id=${network.id}`))[0]!.subnets, [v4.id, v6.id])

  await t.test('the gateway and pools are as requested, and determine the addresses', async t => {
    t.match((await make({ cidr: '10.10.1.0/24', gateway_ip: null })).body, {
      subnet: { gateway_ip: null, allocation_pools: [{ start: '10.10.1.1', end: '10.10.1.254' }] },
    })
    t.match((await make({ cidr: '10.10.2.0/24', gateway_ip: '10.10.2.9' })).body, {
      subnet: {
        allocation_pools: [
          { start: '10.10.2.1', end: '10.10.2.8' },
          { start: '10.10.2.10', end: '10.10.2.254' },
        ],
      },
    })
    const pools = [{ start: '10.10.3.20', end: '10.10.3.21' }]
    const small = (await make({ cidr: '10.10.3.0/24', allocation_pools: pools })).body.subnet as Item
    t.strictSame(small.allocation_pools, pools)
    const ask = () =>
      call('POST /v2.0/ports', A, { port: { network_id: network.id, fixed_ips: [{ subnet_id: small.id }] } })
    const ports = [await ask(), await ask()].map(
      reply => (reply.body.port as Item).fixed_ips as { ip_address: string }[],
    )
    t.strictSame(ports.map(([fixedIp]) => fixedIp!.ip_address).sort(), ['10.10.3.20', '10.10.3.21'])
    isFault(t, await ask(), 409, 'IpAddressGenerationFailure')
    const wider = [{ start: '10.10.3.20', end: '10.10.3.22' }]
    t.equal((await call(`PUT /v2.0/subnets/${small.id}`, A, { subnet: { allocation_pools: wider } })).status, 200)
    t.equal((await ask()).status, 201, 'ports use the widened pool')
    const taken = { subnet: { gateway_ip: '10.10.3.21', allocation_pools: [] } }
    isFault(t, await call(`PUT /v2.0/subnets/${small.id}`, A, taken), 409, 'GatewayIpInUse')
  })

  await t.test('invalid subnets are refused with Neutron’s error types', async t => {
    const cases: [body: object, status: number, type: string, message: RegExp | string][] = [
      [{ cidr: '10.10.9.5/24' }, 400, 'HTTPBadRequest', /'10.10.9.0\/24' is recommended/],
      [{ cidr: '0177.0.0.0/8' }, 400, 'HTTPBadRequest', /isn't a recognized IP subnet cidr/],
      [{ cidr: 'nonsense' }, 400, 'HTTPBadRequest', /cidr/],
      [{ cidr: 5 }, 400, 'HTTPBadRequest', /cidr/],
      [{}, 400, 'HTTPBadRequest', "Failed to parse request. Required attribute 'cidr' not specified"],
      [{ cidr: '10.10.0.128/25' }, 400, 'InvalidInput', /overlaps with another subnet/],
      [{ cidr: '10.10.9.0/24', ip_version: 6 }, 400, 'InvalidInput', /does not match the ip_version/],
      [{ cidr: '10.10.9.0/24', ip_version: 5 }, 400, 'HTTPBadRequest', /5 is not in \[4, 6\]/],
      [{ cidr: '10.10.9.0/24', gateway_ip: '10.10.8.1' }, 400, 'InvalidInput', /Gateway is not valid on subnet/],
      [{ cidr: '10.10.9.0/24', gateway_ip: '10.10.9.255' }, 400, 'InvalidInput', /Gateway is not valid on subnet/],
      [{ cidr: '10.10.9.0/24', ipv6_ra_mode: 'slaac' }, 400, 'InvalidInput', /cannot be set/],
      [
        { cidr: 'fd00:99::/64', ipv6_ra_mode: 'slaac', ipv6_address_mode: 'dhcpv6-stateful' },
        400,
        'InvalidInput',
        /must be the same value/,
      ],
      [{ cidr: '0.0.0.0/0' }, 400, 'InvalidInput', /0 is not allowed/],
      [{ cidr: '10.10.9.0/24', network_id: randomUUID() }, 404, 'NetworkNotFound', /could not be found/],
      [{ cidr: '10.10.9.0/24', colour: 'red' }, 400, 'HTTPBadRequest', "Unrecognized attribute(s) 'colour'"],
    ]
    for (const [body, status, type, message] of cases) isFault(t, await make(body), status, type, message)
    const pools: [start: string, end: string, status: number, type: string][] = [
      ['10.10.9.1', '10.10.9.9', 409, 'GatewayConflictWithAllocationPools'],
      ['10.10.9.9', '10.10.9.2', 400, 'InvalidAllocationPool'],
      ['10.10.9.9', '10.10.9.255', 400, 'OutOfBoundsAllocationPool'],
      ['10.10.9.9', '10.10.10.9', 400, 'OutOfBoundsAllocationPool'],
      ['fd00::1', 'fd00::2', 400, 'OutOfBoundsAllocationPool'],
    ]
    for (const [start, end, status, type] of pools) {
      isFault(t, await make({ cidr: '10.10.9.0/24', allocation_pools: [{ start, end }] }), status, type)
    }
    const overlapping = [
      ['10.10.9.5', '10.10.9.9'],
      ['10.10.9.2', '10.10.9.5'],
    ].map(([start, end]) => ({ start, end }))
    isFault(t, await make({ cidr: '10.10.9.0/24', allocation_pools: overlapping }), 409, 'OverlappingAllocationPools')
  })

  await t.test('exactly one of several overlapping subnets created at the same time succeeds', async t => {
    const replies = await Promise.all(
      ['10.11.0.0/24', '10.11.0.0/25', '10.11.0.0/23', '10.11.0.0/26'].map(cidr => make({ cidr })),
    )
    t.strictSame(replies.map(reply => reply.status).sort(), [201, 400, 400, 400])
  })

  await t.test('an update changes everything but the CIDR', async t => {
    const subnet = {
      name: 'renamed',
      dns_nameservers: ['9.9.9.9'],
      host_routes: [{ destination: '10.99.0.0/16', nexthop: '10.10.0.3' }],
      gateway_ip: null,
      enable_dhcp: false,
    }
    t.match(await call(`PUT /v2.0/subnets/${v4.id}`, A, { subnet }), { status: 200, body: { subnet } })
    t.strictSame((await driver.subnets([v4.id]))[0]!.hostRoutes, subnet.host_routes, 'the driver returns the routes')
    isFault(t, await call(`PUT /v2.0/subnets/${v4.id}`, A, { subnet: { cidr: '10.0.0.0/8' } }), 400, 'HTTPBadRequest')
  })
})

t.test('a refusal names each attribute once, with the reason', async t => {
  for (const [path, body, message] of [
    ['networks', { network: { mtu: 5 } }, "Invalid input for mtu. Reason: '5' is too small - must be at least '1280'."],
    ['networks', { network: { is_default: true } }, 'Invalid input for is_default. Reason: only false is supported.'],
    ['networks', { network: { project_id: [] } }, 'Invalid input for project_id. Reason: [] is not a valid string.'],
    [
      'networks',
      { network: { name: 5, availability_zone_hints: 'x' } },
      "Invalid input for name. Reason: 5 is not a valid string. Invalid input for availability_zone_hints. Reason: 'x' is not a list.",
    ],
    [
      'ports',
      { port: { network_id: randomUUID(), mac_address: 'x', fixed_ips: [5] } },
      "Invalid input for mac_address. Reason: 'x' is not a valid MAC address. Invalid input for fixed_ips.0. Reason: 5 is not an object.",
    ],
  ] as const) {
    const reply = await call(`POST /v2.0/${path}`, A, body)
    isFault(t, reply, 400, 'HTTPBadRequest')
    t.match(reply.body, { NeutronError: { message } })
  }
})

t.test('a change can require the revision that its author has seen', async t => {
  const network = await create('network', {})
  const subnet = await create('subnet', { network_id: network.id, cidr: '10.70.0.0/24' })
  const port = await create('port', { network_id: network.id })
  const seeing = (revision: unknown) => ({ 'If-Match': `revision_number=${revision}` })
  const other = 'RevisionNumberConstraintFailed'
  for (const [kind, { id }] of [
    ['port', port],
    ['subnet', subnet],
    ['network', network],
  ] as const) {
    const path = `/v2.0/${kind}s/${id}`
    const change = (headers: Record<string, string>, name = 'changed') =>
      call(`PUT ${path}`, A, { [kind]: { name } }, { headers })
    t.match(await change(seeing(1)), { status: 200, body: { [kind]: { revision_number: 2 } } })
    isFault(t, await change(seeing(1), 'lost'), 412, other, 'Constrained to 1, but current revision is 2')
    isFault(t, await change({ 'If-Match': '"revision_number=1"' }), 412, other)
    isFault(t, await call(`PUT ${path}/tags`, A, { tags: ['x'] }, { headers: seeing(1) }), 412, other)
    isFault(t, await call(`PUT ${path}/tags/x`, A, undefined, { headers: seeing(1) }), 412, other)
    isFault(t, await call(`DELETE ${path}`, A, undefined, { headers: seeing(3) }), 412, other)
    t.match((await call(`GET ${path}`, A)).body, { [kind]: { name: 'changed', tags: [], revision_number: 2 } })
    isFault(t, await change(seeing('x')), 400, 'HTTPBadRequest', 'must be an integer')
    const twice = { 'If-Match': 'revision_number=2, revision_number=3' }
    isFault(t, await change(twice), 400, 'HTTPBadRequest', 'Multiple')
    t.equal((await change({ 'If-Match': '"etag"' })).status, 200, 'any other entity tag has no effect')
    t.equal((await call(`PUT ${path}/tags/x`, A, undefined, { headers: seeing(3) })).status, 201)
    t.equal((await call(`PUT ${path}`, B, { [kind]: {} }, { headers: seeing(1) })).status, 404)
    t.equal((await call(`DELETE ${path}`, A, undefined, { headers: seeing(4) })).status, 204)
  }
  const noop = { base: api.noopUrl, headers: seeing(2) }
  isFault(t, await call(`PUT /v2.0/networks/${network.id}`, A, { network: {} }, noop), 412, other)

  await t.test('of two that have seen the same, one succeeds', async t => {
    const { id } = await create('network', {})
    const rename = (name: string) => call(`PUT /v2.0/networks/${id}`, A, { network: { name } }, { headers: seeing(1) })
    const statuses = (await Promise.all(['a', 'b', 'c'].map(rename))).map(({ status }) => status)
    t.strictSame(statuses.sort(), [200, 412, 412])
  })
})

t.test('with the noop driver, every id exists', async t => {
  for (const plural of ['networks', 'subnets', 'ports']) {
    const id = randomUUID()
    t.strictSame(ids(await list(plural, `id=${id}`, A, api.noopUrl)), [id])
    const named = await list(plural, 'name=anything', A, api.noopUrl)
    t.strictSame(
      ids(named),
      ids(await list(plural, 'name=anything', A, api.noopUrl)),
      'a name always maps to the same id',
    )
    t.equal(named.length, 1)
    t.strictSame(await list(plural, '', A, api.noopUrl), [])
    t.equal((await call(`GET /v2.0/${plural}/${id}`, A, undefined, { base: api.noopUrl })).status, 200)
    t.equal((await call(`DELETE /v2.0/${plural}/${id}`, A, undefined, { base: api.noopUrl })).status, 204)
    isFault(
      t,
      await call(`GET /v2.0/${plural}/word`, A, undefined, { base: api.noopUrl }),
      404,
      `${plural === 'networks' ? 'Network' : plural === 'ports' ? 'Port' : 'Subnet'}NotFound`,
    )
  }
  const made = await call(
    'POST /v2.0/subnets',
    A,
    { subnet: { network_id: randomUUID(), cidr: '10.0.0.0/24' } },
    { base: api.noopUrl },
  )
  t.match(made, { status: 201, body: { subnet: { cidr: '10.0.0.0/24', project_id: 'a' } } })
  const wrong = await call('POST /v2.0/ports', A, { port: { network_id: 5 } }, { base: api.noopUrl })
  isFault(t, wrong, 400, 'HTTPBadRequest')
})

t.test('the initial networks are created once and cannot be deleted while needed', async t => {
  const options = { cidr: '10.77.0.0/16', serviceProjectId: 'service', demoProjectId: 'demo' }
  const [made, again] = await Promise.all([bootstrapNetworks(db, options), bootstrapNetworks(db, options)])
  t.strictSame(made, again, 'concurrent starts create them once')
  t.strictSame(await bootstrapNetworks(db, { ...options, cidr: '10.88.0.0/16' }), made, 'later starts reuse them')
  t.match(made, {
    management: { mtu: 1500, subnets: [{ cidr: '10.77.0.0/20', gatewayIp: '10.77.0.1' }] },
    public: { subnets: [{ cidr: '10.77.16.0/20', gatewayIp: '10.77.16.1' }] },
    private: { subnets: [{ cidr: '10.77.32.0/20' }, { cidr: /^fd[0-9a-f:]+::\/64$/ }] },
  })
  const management = await driver.managementNetwork()
  t.match(management, {
    controllerAddress: '10.77.0.1',
    network: { id: made.management.id },
    subnet: { cidr: '10.77.0.0/20' },
  })
  const demo = 'demo/member,reader'
  t.strictSame(
    (await list('networks', 'name=private&name=public&name=management', demo)).map(network => network.name).sort(),
    ['private', 'public'],
  )
  t.strictSame((await list('networks', 'name=private', A)).length, 0)
  isFault(
    t,
    await call(`DELETE /v2.0/networks/${made.public.id}`, ADMIN),
    409,
    'NetworkInUse',
    /needs its public network/,
  )
  isFault(t, await call(`DELETE /v2.0/subnets/${management.subnet.id}`, ADMIN), 409, 'SubnetInUse')
  const port = await create('port', { network_id: made.private.id }, demo)
  t.equal((port.fixed_ips as unknown[]).length, 2)
  await t.rejects(bootstrapNetworks(db, { ...options, cidr: '10.77.0.0/20' }), /must be an IPv4 \/16/)
})

t.test('subnets and routes that overlap the management network are refused', async t => {
  const [management] = await db('network').where({ built_in: 'management' })
  const [{ cidr: whole } = { cidr: '' }] = await driver.subnets((await driver.network(management.id))?.subnetIds ?? [])
  t.equal(whole, '10.77.0.0/20')
  const network = await create('network', {})
  const make = (subnet: object) => call('POST /v2.0/subnets', A, { subnet: { network_id: network.id, ...subnet } })
  const over = (destination: string) => ({ host_routes: [{ destination, nexthop: '10.86.0.9' }] })
  for (const cidr of ['10.77.3.0/24', '10.77.0.0/20', '10.0.0.0/8']) {
    isFault(t, await make({ cidr }), 400, 'InvalidInput', /overlaps the management network/)
  }
  for (const destination of ['10.77.0.7/32', '10.77.0.0/20', '10.0.0.0/8', '0.0.0.0/1']) {
    isFault(
      t,
      await make({ cidr: '10.86.0.0/24', ...over(destination) }),
      400,
      'InvalidInput',
      /one of its host_routes/,
    )
  }
  t.strictSame(await list('subnets', `network_id=${network.id}`), [], 'no refused request stores anything')
  const subnet = await create('subnet', { network_id: network.id, cidr: '10.86.0.0/24', ...over('0.0.0.0/0') })
  const change = (body: object) => call(`PUT /v2.0/subnets/${subnet.id}`, A, { subnet: body })
  isFault(t, await change(over('10.77.0.0/21')), 400, 'InvalidInput', /overlaps the management network/)
  t.equal((await change(over('10.99.0.0/16'))).status, 200)
})
