import { randomUUID } from 'node:crypto'
import type { Knex } from 'knex'
import t from 'tap'
import { PORT_OWNER } from '../../../controller/network/driver.js'
import {
  A,
  ADMIN,
  B,
  type Item,
  isFault,
  READER,
  type Reply,
  startNetworkApi,
} from '../../support/clients/network-api.js'
import { eventually } from '../../support/eventually.js'

const api = await startNetworkApi()
t.teardown(api.stop)
const { db, driver, call, create, list, show, place, connect, refuseAll } = api

const outside = await create('network', { 'router:external': true, name: 'outside' }, ADMIN)
/** Addresses that the tests name are outside the pools, so that nobody gets them by chance. */
const pool = (first: string, last: string) => ({ allocation_pools: [{ start: first, end: last }] })
const outer = await create(
  'subnet',
  { network_id: outside.id, cidr: '203.0.113.0/24', ...pool('203.0.113.100', '203.0.113.199') },
  ADMIN,
)

t.test('floating IPs', async t => {
  const { network, subnet } = await place('10.8.0.0/24', A, pool('10.8.0.100', '10.8.0.199'))
  const port = await create('port', { network_id: network.id, name: 'web' })
  const [fixed] = port.fixed_ips as { ip_address: string }[]
  const router = await create('router', {})
  const make = (body: object, token = A) =>
    call('POST /v2.0/floatingips', token, { floatingip: { floating_network_id: outside.id, ...body } })
  const free = (await make({ description: 'door' })).body.floatingip as Item
  t.match(free, {
    description: 'door',
    status: 'DOWN',
    project_id: 'a',
    tenant_id: 'a',
    floating_network_id: outside.id,
    floating_ip_address: /^203\.0\.113\./,
    fixed_ip_address: null,
    port_id: null,
    router_id: null,
    port_details: null,
    port_forwardings: [],
    dns_name: '',
    dns_domain: '',
    qos_policy_id: null,
    tags: [],
    revision_number: 1,
  })
  t.notOk('name' in free)
  const path = `/v2.0/floatingips/${free.id}`
  const change = (body: object, at = path, token = A) => call(`PUT ${at}`, token, { floatingip: body })

  await t.test('lead to a port that a router connects', async t => {
    const unreachable = /is not reachable from subnet/
    isFault(t, await change({ port_id: port.id }), 404, 'ExternalGatewayForFloatingIPNotFound', unreachable)
    await connect(router, { subnet_id: subnet.id })
    isFault(t, await change({ port_id: port.id }), 404, 'ExternalGatewayForFloatingIPNotFound', unreachable)
    await call(`PUT /v2.0/routers/${router.id}`, A, { router: { external_gateway_info: { network_id: outside.id } } })
    t.match(await change({ port_id: port.id }), {
      status: 200,
      body: {
        floatingip: {
          status: 'ACTIVE',
          router_id: router.id,
          port_id: port.id,
          fixed_ip_address: fixed?.ip_address,
          description: 'door',
          port_details: { name: 'web', network_id: network.id, mac_address: port.mac_address, device_id: '' },
        },
      },
    })
    t.match(await change({ description: 'gate' }), { body: { floatingip: { port_id: port.id, description: 'gate' } } })
    t.strictSame((await list('floatingips', `port_id=${port.id}&status=ACTIVE`)).length, 1)
    t.strictSame((await list('floatingips', `fixed_ip_address=${fixed?.ip_address}&router_id=${router.id}`)).length, 1)
  })

  await t.test('refuse what does not fit', async t => {
    const v6 = await create('subnet', { network_id: network.id, cidr: 'fd00:8::/64' })
    const onlyV6 = await create('port', { network_id: network.id, fixed_ips: [{ subnet_id: v6.id }] })
    const both = await create('port', {
      network_id: network.id,
      fixed_ips: [{ ip_address: '10.8.0.40' }, { ip_address: '10.8.0.41' }],
    })
    const dual = await create('network', { 'router:external': true }, ADMIN)
    await create('subnet', { network_id: dual.id, cidr: 'fd00:9::/64' }, ADMIN)
    const theirs = await create('network', {}, B)
    await create('subnet', { network_id: theirs.id, cidr: '10.8.0.0/24' }, B)
    const foreign = await create('port', { network_id: theirs.id }, B)
    const post = (body: object): [string, unknown] => [
      'POST /v2.0/floatingips',
      { floatingip: { floating_network_id: outside.id, ...body } },
    ]
    const taken = free.floating_ip_address
    await refuseAll(t, [
      ['POST /v2.0/floatingips', { floatingip: {} }, 400, 'HTTPBadRequest', /floating_network_id/],
      [...post({ floating_network_id: randomUUID() }), 404, 'NetworkNotFound', /./],
      [...post({ floating_network_id: network.id }), 400, 'BadRequest', /is not a valid external network/],
      [...post({ floating_network_id: dual.id }), 400, 'BadRequest', /does not contain any IPv4 subnet/],
      [...post({ port_id: randomUUID() }), 404, 'PortNotFound', /./],
      [...post({ port_id: foreign.id }), 404, 'PortNotFound', /./],
      [...post({ port_id: foreign.id }), 400, 'BadRequest', /owned by a different tenant/, ADMIN],
      [
        ...post({ port_id: port.id }),
        409,
        'FloatingIPPortAlreadyAssociated',
        /already has a floating IP on external network/,
      ],
      [...post({ port_id: onlyV6.id }), 400, 'BadRequest', /no fixed IPv4 addresses/],
      [...post({ port_id: both.id }), 400, 'BadRequest', /multiple fixed IPv4 addresses/],
      [...post({ port_id: both.id, fixed_ip_address: '10.8.0.99' }), 400, 'BadRequest', /does not have fixed ip/],
      [...post({ port_id: both.id, fixed_ip_address: 'fd00:8::1' }), 400, 'BadRequest', /not an IPv4 address/],
      [...post({ fixed_ip_address: '10.8.0.40' }), 400, 'BadRequest', /cannot be specified without a port_id/],
      [...post({ floating_ip_address: '203.0.113.200' }), 403, 'PolicyNotAuthorized', /floating_ip_address/],
      [...post({ floating_ip_address: taken }), 409, 'IpAddressAlreadyAllocated', /already allocated/, ADMIN],
      [...post({ floating_ip_address: '198.51.100.1' }), 400, 'InvalidIpForNetwork', /./, ADMIN],
      [...post({ floating_ip_address: 'fd00:9::9' }), 400, 'InvalidIpForNetwork', /./, ADMIN],
      [...post({ subnet_id: subnet.id }), 400, 'InvalidInput', /invalid subnet/],
      [...post({}), 403, 'PolicyNotAuthorized', /create_floatingip/, READER],
      [`PUT ${path}`, { floatingip: { floating_ip_address: '203.0.113.9' } }, 400, 'HTTPBadRequest', /Unrecognized/],
    ])
    const exact = await make({ port_id: both.id, fixed_ip_address: '10.8.0.41', subnet_id: outer.id })
    t.match(exact, { status: 201, body: { floatingip: { fixed_ip_address: '10.8.0.41' } } })
    const wanted = await make({ floating_ip_address: '203.0.113.200', tenant_id: 'a' }, ADMIN)
    t.match(wanted, { status: 201, body: { floatingip: { floating_ip_address: '203.0.113.200', project_id: 'a' } } })
  })

  await t.test('keep the router that they need', async t => {
    await refuseAll(t, [
      [
        `PUT /v2.0/routers/${router.id}`,
        { router: { external_gateway_info: null } },
        409,
        'RouterExternalGatewayInUseByFloatingIp',
        /required by one or more floating IPs/,
      ],
      [
        `PUT /v2.0/routers/${router.id}/remove_router_interface`,
        { subnet_id: subnet.id },
        409,
        'RouterInterfaceInUseByFloatingIP',
        /required by one or more floating IPs/,
      ],
      [
        `PUT /v2.0/ports/${port.id}`,
        { port: { fixed_ips: [{ ip_address: '10.8.0.77' }] } },
        400,
        'BadRequest',
        /floating IP 203\.0\.113\.\d+ is associated/,
      ],
    ])
    const outerPorts = await list('ports', 'device_owner=network:floatingip', ADMIN)
    t.strictSame(await list('ports', 'device_owner=network:floatingip'), [], 'its own port is hidden')
    for (const { id } of outerPorts) {
      isFault(t, await call(`DELETE /v2.0/ports/${id}`, ADMIN), 409, 'L3PortInUse', /network:floatingip/)
    }
  })

  await t.test('move, and lose their port with its address', async t => {
    const second = await create('port', { network_id: network.id, fixed_ips: [{ ip_address: '10.8.0.60' }] })
    t.match((await change({ port_id: second.id })).body, { floatingip: { fixed_ip_address: '10.8.0.60' } })
    t.match((await change({ port_id: null })).body, { floatingip: { port_id: null, router_id: null, status: 'DOWN' } })
    const { revision_number: before } = (await change({ port_id: second.id })).body.floatingip as {
      revision_number: number
    }
    t.equal((await call(`DELETE /v2.0/ports/${second.id}`, A)).status, 204)
    t.match(await show(`floatingips/${free.id}`, 'floatingip'), {
      port_id: null,
      fixed_ip_address: null,
      router_id: null,
      status: 'DOWN',
      revision_number: before + 1,
    })
  })

  await t.test('go with their network unless they lead somewhere', async t => {
    const hall = await create('network', { 'router:external': true }, ADMIN)
    await create('subnet', { network_id: hall.id, cidr: '203.0.115.0/28' }, ADMIN)
    const idle = (await make({ floating_network_id: hall.id })).body.floatingip as Item
    const inner = await place('10.9.0.0/24')
    const web = await create('port', { network_id: inner.network.id })
    const door = await create('router', { external_gateway_info: { network_id: hall.id } })
    await connect(door, { subnet_id: inner.subnet.id })
    const used = (await make({ floating_network_id: hall.id, port_id: web.id })).body.floatingip as Item
    isFault(t, await call(`DELETE /v2.0/networks/${hall.id}`, ADMIN), 409, 'NetworkInUse')
    t.match(await list('floatingips', `floating_network_id=${hall.id}`), { length: 2 }, 'a refusal removes none')
    t.equal((await change({ port_id: null }, `/v2.0/floatingips/${used.id}`)).status, 200)
    await call(`PUT /v2.0/routers/${door.id}`, A, { router: { external_gateway_info: null } })
    t.equal((await call(`DELETE /v2.0/networks/${hall.id}`, ADMIN)).status, 204)
    for (const { id } of [idle, used]) t.equal((await call(`GET /v2.0/floatingips/${id}`, A)).status, 404)
  })

  await t.test('lead to the port of a VIP, until the load balancer releases it', async t => {
    const vip = await driver.ensurePort({
      networkId: network.id,
      fixedIps: [{ subnetId: subnet.id }],
      projectId: 'a',
      name: 'vip',
      deviceId: 'lb-1',
      deviceOwner: PORT_OWNER.vip,
    })
    // As cloud-provider-openstack does it.
    const externals = await list('networks', 'router:external=true')
    t.ok(externals.some(({ id }) => id === outside.id))
    const made = await make({ port_id: vip.id, description: 'Floating IP for Kubernetes external service' })
    t.match(made, {
      status: 201,
      body: { floatingip: { port_id: vip.id, fixed_ip_address: vip.fixedIps[0]?.address } },
    })
    const { id } = made.body.floatingip as Item
    t.match(await list('floatingips', `port_id=${vip.id}`), [{ id }])
    t.match(await change({ port_id: null }, `/v2.0/floatingips/${id}`), { status: 200 })
    t.match(await change({ port_id: vip.id }, `/v2.0/floatingips/${id}`), { status: 200 })
    await driver.deletePort(vip.id)
    t.match(await show(`floatingips/${id}`, 'floatingip'), { port_id: null, status: 'DOWN' })
    t.equal((await call(`DELETE /v2.0/floatingips/${id}`, A)).status, 204)
    t.equal((await call(`DELETE /v2.0/floatingips/${id}`, A)).status, 404)
  })

  await t.test('of two for one address at the same time, one is made', async t => {
    const wanted = await create('port', { network_id: network.id })
    const replies = await Promise.all(['', '', ''].map(() => make({ port_id: wanted.id })))
    t.strictSame(replies.map(({ status }) => status).sort(), [201, 409, 409])
  })

  await t.test('a project gets at most its share of a shared external network', async t => {
    const hall = await create('network', { 'router:external': true, shared: true }, ADMIN)
    await create('subnet', { network_id: hall.id, cidr: '203.0.114.0/28' }, ADMIN)
    const replies = await Promise.all(Array.from({ length: 6 }, () => make({ floating_network_id: hall.id })))
    const full = replies.filter(({ status }) => status !== 201)
    for (const reply of full) isFault(t, reply, 409, 'IpAddressGenerationFailure', /at most 25 percent/)
    t.equal(full.length, 3)
  })
})

t.test('a request that waits for another one sees what it did', async t => {
  const door = await create('router', { external_gateway_info: { network_id: outside.id } })
  const { network, subnet } = await place('10.40.0.0/24')
  await connect(door, { subnet_id: subnet.id })
  const [port, other] = [
    await create('port', { network_id: network.id }),
    await create('port', { network_id: network.id }),
  ]
  const floating = await create('floatingip', { floating_network_id: outside.id })
  const lead = ({ id }: Item) => call(`PUT /v2.0/floatingips/${floating.id}`, A, { floatingip: { port_id: id } })
  const goes =
    (table: string, { id }: Item) =>
    (trx: Knex) =>
      trx(table).where({ id }).delete()
  const group = await create('security_group', {})
  const [inner, hall] = [await place('10.41.0.0/24'), await create('network', { 'router:external': true }, ADMIN)]

  const crossings: readonly [(trx: Knex) => Promise<unknown>, () => Promise<Reply>, number, string][] = [
    [goes('port', port), () => lead(port), 400, 'BadRequest'],
    [goes('subnet', inner.subnet), () => connect(door, { subnet_id: inner.subnet.id }), 404, 'SubnetNotFound'],
    [
      goes('security_group', group),
      () => call(`PUT /v2.0/ports/${other.id}`, A, { port: { security_groups: [group.id] } }),
      404,
      'SecurityGroupNotFound',
    ],
    [
      goes('network', hall),
      () => call('POST /v2.0/routers', A, { router: { external_gateway_info: { network_id: hall.id } } }),
      404,
      'NetworkNotFound',
    ],
    [
      goes('network', inner.network),
      () => call('POST /v2.0/ports', A, { port: { network_id: inner.network.id } }),
      404,
      'NetworkNotFound',
    ],
  ]
  for (const [change, request, status, type] of crossings) {
    const trx = await db.transaction()
    await change(trx)
    const reply = request()
    await eventually(`${type}: the request waits`, async () => {
      const waiting = await db.raw(
        `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      )
      return waiting.rows.length > 0
    })
    await trx.commit()
    isFault(t, await reply, status, type)
  }
})
