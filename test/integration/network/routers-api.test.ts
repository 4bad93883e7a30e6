import { randomUUID } from 'node:crypto'
import t from 'tap'
import { bootstrapNetworks } from '../../../controller/network/bootstrap.js'
import { A, ADMIN, isFault, READER, type Refusal, startNetworkApi } from '../../support/clients/network-api.js'

const api = await startNetworkApi()
t.teardown(api.stop)
const { db, call, create, list, show, place, connect, disconnect, refuseAll } = api

const outside = await create('network', { 'router:external': true, name: 'outside' }, ADMIN)
const outer = await create('subnet', { network_id: outside.id, cidr: '203.0.113.0/24' }, ADMIN)

t.test('routers', async t => {
  const { network, subnet } = await place('10.1.0.0/24')
  const router = await create('router', { name: 'edge', external_gateway_info: { network_id: outside.id } })
  t.match(router, {
    name: 'edge',
    project_id: 'a',
    tenant_id: 'a',
    admin_state_up: true,
    status: 'ACTIVE',
    external_gateway_info: {
      network_id: outside.id,
      enable_snat: true,
      external_fixed_ips: [{ subnet_id: outer.id, ip_address: /^203\.0\.113\./ }],
    },
    routes: [],
    distributed: false,
    ha: false,
    flavor_id: null,
    availability_zones: [],
    availability_zone_hints: [],
    tags: [],
    revision_number: 1,
  })
  const path = `/v2.0/routers/${router.id}`

  await t.test('connect subnets by their gateway address, and ports', async t => {
    const added = await connect(router, { subnet_id: subnet.id })
    t.match(added, {
      status: 200,
      body: { id: router.id, tenant_id: 'a', network_id: network.id, subnet_id: subnet.id, subnet_ids: [subnet.id] },
    })
    const port = await show(`ports/${added.body.port_id}`, 'port')
    t.match(port, {
      device_id: router.id,
      device_owner: 'network:router_interface',
      fixed_ips: [{ ip_address: '10.1.0.1' }],
      security_groups: [],
      status: 'ACTIVE',
    })
    const second = await place('10.2.0.0/24')
    const own = await create('port', { network_id: second.network.id, fixed_ips: [{ ip_address: '10.2.0.9' }] })
    t.equal((await connect(router, { port_id: own.id })).status, 200)
    t.match(await show(`ports/${own.id}`, 'port'), { device_id: router.id, security_groups: [] })
    const overlapping = await place('10.1.0.0/16')
    const closed = await place('10.3.0.0/24', A, { gateway_ip: null })
    const bare = await create('port', { network_id: second.network.id, fixed_ips: [] })
    const used = await create('port', { network_id: second.network.id, device_id: 'machine' })
    const blocked = await place('10.4.0.0/24')
    await create('port', { network_id: blocked.network.id, fixed_ips: [{ ip_address: '10.4.0.2' }] })
    await db('fixed_ip').where({ subnet_id: blocked.subnet.id }).update({ address: '10.4.0.1' })
    const add = `PUT ${path}/add_router_interface`
    await refuseAll(t, [
      [add, {}, 400, 'BadRequest', /Either subnet_id or port_id must be specified/],
      [add, { subnet_id: subnet.id, port_id: own.id }, 400, 'BadRequest', /Cannot specify both/],
      [add, { subnet_id: 'x' }, 400, 'HTTPBadRequest', /not a valid UUID/],
      [add, { subnet_id: randomUUID() }, 404, 'SubnetNotFound', /./],
      [add, { port_id: randomUUID() }, 404, 'PortNotFound', /./],
      [add, { subnet_id: subnet.id }, 400, 'BadRequest', /already has a port on subnet/],
      [
        add,
        { subnet_id: overlapping.subnet.id },
        400,
        'BadRequest',
        /Cidr 10.1.0.0\/16 .* overlaps with cidr 10.1.0.0\/24/,
      ],
      [add, { subnet_id: closed.subnet.id }, 400, 'BadRequest', /must have a gateway IP/],
      [add, { port_id: bare.id }, 400, 'BadRequest', /at least one fixed IP/],
      [add, { port_id: used.id }, 409, 'PortInUse', /already has an attached device machine/],
      [add, { port_id: own.id }, 409, 'PortInUse', /already has an attached device/],
      [add, { subnet_id: blocked.subnet.id }, 409, 'IpAddressInUse', /10.4.0.1 is in use/],
      [add, { subnet_id: blocked.subnet.id }, 403, 'PolicyNotAuthorized', /add_router_interface/, READER],
    ])
    t.strictSame((await list('ports', `device_id=${router.id}`)).length, 2, 'the gateway’s port is hidden')
    t.strictSame((await list('ports', `device_id=${router.id}`, ADMIN)).length, 3)
  })

  await t.test('protect what they use', async t => {
    const [leg] = await list('ports', `device_id=${router.id}&fixed_ips=ip_address=10.1.0.1`)
    const update = { port: { fixed_ips: [{ ip_address: '10.1.0.5' }] } }
    await refuseAll(t, [
      [`DELETE ${path}`, undefined, 409, 'RouterInUse', /still has ports/],
      [`DELETE /v2.0/ports/${leg?.id}`, undefined, 409, 'L3PortInUse', /network:router_interface/],
      [`DELETE /v2.0/ports/${leg?.id}`, undefined, 409, 'L3PortInUse', /network:router_interface/, ADMIN],
      [`PUT /v2.0/ports/${leg?.id}`, update, 409, 'PortInUse', /router or floating IP/],
      [`DELETE /v2.0/subnets/${subnet.id}`, undefined, 409, 'SubnetInUse', /IP allocation/],
      [`DELETE /v2.0/networks/${network.id}`, undefined, 409, 'NetworkInUse', /still in use/],
      [`PUT /v2.0/subnets/${subnet.id}`, { subnet: { gateway_ip: '10.1.0.7' } }, 409, 'GatewayIpInUse', /10.1.0.1/],
      [
        `PUT /v2.0/networks/${outside.id}`,
        { network: { 'router:external': false } },
        409,
        'ExternalNetworkInUse',
        /gateway ports/,
        ADMIN,
      ],
      [`DELETE /v2.0/networks/${outside.id}`, undefined, 409, 'NetworkInUse', /./, ADMIN],
    ])
    t.equal((await call(`PUT /v2.0/ports/${leg?.id}`, A, { port: { name: 'leg' } })).status, 200)
    const same = { port: { fixed_ips: [{ subnet_id: subnet.id }] } }
    t.match((await call(`PUT /v2.0/ports/${leg?.id}`, A, same)).body, {
      port: { fixed_ips: [{ ip_address: '10.1.0.1' }] },
    })
    for (const device_owner of ['network:router_interface', 'network:router_gateway', 'network:floatingip']) {
      const body = { port: { network_id: network.id, device_owner } }
      isFault(t, await call('POST /v2.0/ports', ADMIN, body), 400, 'InvalidInput', /only routers and floating IPs/)
    }
  })

  await t.test('have extra routes to neighbours on their subnets', async t => {
    const route = (destination: string, nexthop: string) => ({ destination, nexthop })
    const [one, two] = [route('10.50.0.0/16', '10.1.0.50'), route('10.60.0.0/16', '10.2.0.60')]
    const change = (action: string, routes: unknown) => call(`PUT ${path}${action}`, A, { router: { routes } })
    t.match(await change('', [one]), { status: 200, body: { router: { routes: [one] } } })
    t.match(await change('/add_extraroutes', [two, one]), { status: 200, body: { router: { routes: [one, two] } } })
    t.match(await change('/remove_extraroutes', [one]), { status: 200, body: { router: { routes: [two] } } })
    const [second] = await list('subnets', 'cidr=10.2.0.0/24')
    const needed = await disconnect(router, { subnet_id: second?.id })
    isFault(t, needed, 409, 'RouterInterfaceInUseByRoute', /one or more routes/)
    const refused = (routes: unknown, type: string, message: RegExp): Refusal => [
      `PUT ${path}`,
      { router: { routes } },
      400,
      type,
      message,
    ]
    const many = Array.from({ length: 31 }, (_, index) => route(`10.70.${index}.0/24`, '10.1.0.50'))
    await refuseAll(t, [
      refused([route('10.50.0.0/16', '10.9.0.1')], 'InvalidRoutes', /not connected with router/),
      refused([route('10.50.0.0/16', '10.1.0.1')], 'InvalidRoutes', /the nexthop is used by router/),
      refused([route('fd00::/64', '10.1.0.50')], 'InvalidRoutes', /another IP version/),
      refused([route('10.50.0.1/16', '10.1.0.50')], 'HTTPBadRequest', /isn't a recognized IP subnet cidr/),
      refused(many, 'RoutesExhausted', /exceeds the maximum 30/),
      refused(Array(301).fill(one), 'HTTPBadRequest', /the maximum is 300 routes/),
    ])
    t.match(await change('', null), { status: 200, body: { router: { routes: [] } } })
  })

  await t.test('get, change and lose their gateway', async t => {
    const inner = await place('10.5.0.0/24')
    const other = await create('network', { 'router:external': true }, ADMIN)
    await create('subnet', { network_id: other.id, cidr: '10.1.0.128/25' }, ADMIN)
    const set = (info: unknown): [string, unknown] => [`PUT ${path}`, { router: { external_gateway_info: info } }]
    await refuseAll(t, [
      [...set({ network_id: randomUUID() }), 404, 'NetworkNotFound', /./],
      [...set({ network_id: inner.network.id }), 400, 'BadRequest', /is not an external network/],
      [...set({ network_id: other.id }), 400, 'BadRequest', /overlaps with cidr/],
      [...set({ network_id: outside.id, enable_snat: false }), 403, 'PolicyNotAuthorized', /gateway_info:enable_snat/],
      [
        ...set({ network_id: outside.id, external_fixed_ips: [{ ip_address: '203.0.113.77' }] }),
        403,
        'PolicyNotAuthorized',
        /external_fixed_ips/,
      ],
    ])
    const exact = { network_id: outside.id, enable_snat: false, external_fixed_ips: [{ ip_address: '203.0.113.77' }] }
    const [operation, body] = set(exact)
    t.match(await call(operation, ADMIN, body), {
      status: 200,
      body: {
        router: { external_gateway_info: { enable_snat: false, external_fixed_ips: [{ ip_address: '203.0.113.77' }] } },
      },
    })
    const [, elsewhere] = set({ ...exact, external_fixed_ips: [{ ip_address: '198.51.100.1' }] })
    isFault(t, await call(operation, ADMIN, elsewhere), 400, 'InvalidIpForNetwork')
    for (const info of [{}, null]) {
      t.match(await call(`PUT ${path}`, A, { router: { external_gateway_info: info } }), {
        status: 200,
        body: { router: { external_gateway_info: null } },
      })
    }
    t.strictSame(await list('ports', `network_id=${outside.id}`, ADMIN), [], 'its address is free again')
  })

  await t.test('disconnect what they have', async t => {
    const far = await place('10.6.0.0/24')
    const stranger = await create('port', { network_id: far.network.id })
    const [leg] = await list('ports', `device_id=${router.id}&fixed_ips=ip_address=10.1.0.1`)
    const remove = `PUT ${path}/remove_router_interface`
    await refuseAll(t, [
      [remove, {}, 400, 'BadRequest', /must be specified/],
      [remove, { port_id: stranger.id }, 404, 'RouterInterfaceNotFound', /does not have an interface with id/],
      [remove, { subnet_id: far.subnet.id }, 404, 'RouterInterfaceNotFoundForSubnet', /has no interface on subnet/],
      [remove, { subnet_id: far.subnet.id, port_id: leg?.id }, 400, 'SubnetMismatchForPort', /does not match/],
    ])
    t.match(await disconnect(router, { subnet_id: subnet.id, port_id: leg?.id }), {
      status: 200,
      body: { port_id: leg?.id, subnet_ids: [subnet.id] },
    })
    t.equal((await call(`GET /v2.0/ports/${leg?.id}`, A)).status, 404)
    const [last] = await list('ports', `device_id=${router.id}`)
    t.equal((await disconnect(router, { port_id: last?.id })).status, 200)
    t.equal((await call(`DELETE ${path}`, A)).status, 204)
    t.equal((await call(`GET ${path}`, A)).status, 404)
  })

  await t.test('stay off networks of others and of the service', async t => {
    const built = await bootstrapNetworks(db, { cidr: '10.77.0.0/16', serviceProjectId: 'service' })
    const mine = await create('router', {})
    const [management, open] = [built.management.subnets[0]!.id, built.public.subnets[0]!.id]
    const guest = await create('port', { network_id: built.public.id })
    const add = `PUT /v2.0/routers/${mine.id}/add_router_interface`
    await refuseAll(t, [
      [add, { subnet_id: management }, 404, 'SubnetNotFound', /./],
      [add, { subnet_id: open }, 403, 'PolicyNotAuthorized', /add_router_interface/],
      [add, { port_id: guest.id }, 403, 'PolicyNotAuthorized', /add_router_interface/],
      [add, { subnet_id: management }, 400, 'InvalidInput', /management network/, ADMIN],
      [add, { subnet_id: open }, 409, 'IpAddressInUse', /10.77.16.1/, ADMIN],
    ])
  })
})
