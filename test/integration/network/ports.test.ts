import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { PORT_OWNER } from '../../../controller/network/driver.js'
import { A, ADMIN, B, type Item, isFault, startNetworkApi } from '../../support/clients/network-api.js'

const api = await startNetworkApi()
t.teardown(api.stop)
const { db, driver, call, create, list } = api

t.test('ports', async t => {
  const network = await create('network', {})
  const allocation_pools = [{ start: '10.20.0.100', end: '10.20.0.199' }]
  const v4 = await create('subnet', { network_id: network.id, cidr: '10.20.0.0/24', allocation_pools })
  const v6 = await create('subnet', { network_id: network.id, cidr: 'fd00:20::/64' })
  const make = (body: object, token = A) =>
    call('POST /v2.0/ports', token, { port: { network_id: network.id, ...body } })

  await t.test('a port gets one address of each IP version by default', async t => {
    const port = (await make({ name: 'p' })).body.port as Item
    t.match(port, {
      name: 'p',
      status: 'DOWN',
      admin_state_up: true,
      device_id: '',
      device_owner: '',
      mac_address: /^fa:16:3e:/,
      security_groups: [/^[0-9a-f-]{36}$/],
      port_security_enabled: true,
      allowed_address_pairs: [],
      fixed_ips: [
        { subnet_id: v4.id, ip_address: /^10\.20\.0\./ },
        { subnet_id: v6.id, ip_address: /^fd00:20::/ },
      ],
    })
    t.match((await make({ device_id: 'vm', fixed_ips: [] })).body.port, { status: 'ACTIVE', fixed_ips: [] })
  })

  await t.test('a port gets the requested addresses if they are free and valid', async t => {
    const fixed_ips = [{ ip_address: '10.20.0.50' }, { subnet_id: v6.id, ip_address: 'fd00:20:0::00AA' }]
    t.match((await make({ fixed_ips })).body.port, {
      fixed_ips: [
        { subnet_id: v4.id, ip_address: '10.20.0.50' },
        { subnet_id: v6.id, ip_address: 'fd00:20::aa' },
      ],
    })
    const elsewhere = await create('network', {})
    const other = await create('subnet', { network_id: elsewhere.id, cidr: '10.21.0.0/24' })
    const cases: [fixedIp: object, status: number, type: string][] = [
      [{ ip_address: '10.20.0.50' }, 409, 'IpAddressAlreadyAllocated'],
      [{ ip_address: '10.99.0.50' }, 400, 'InvalidIpForNetwork'],
      [{ subnet_id: v4.id, ip_address: '10.99.0.50' }, 400, 'InvalidIpForSubnet'],
      [{ subnet_id: v4.id, ip_address: '10.20.0.255' }, 400, 'InvalidIpForSubnet'],
      [{ subnet_id: other.id }, 400, 'InvalidInput'],
      [{ subnet_id: randomUUID() }, 404, 'SubnetNotFound'],
      [{ ip_address: '10.20.0.050' }, 400, 'HTTPBadRequest'],
    ]
    for (const [fixedIp, status, type] of cases) isFault(t, await make({ fixed_ips: [fixedIp] }), status, type)
    t.equal((await list('ports', `network_id=${network.id}`)).length, 3, 'refused requests leave no port')
  })

  await t.test('a port gets the requested MAC address if it is free and unicast', async t => {
    t.match(await make({ mac_address: 'FA:16:3E:00:00:77' }), {
      status: 201,
      body: { port: { mac_address: 'fa:16:3e:00:00:77' } },
    })
    isFault(t, await make({ mac_address: 'fa:16:3e:00:00:77' }), 409, 'MacAddressInUse')
    isFault(t, await make({ mac_address: '01:00:5e:00:00:01' }), 400, 'HTTPBadRequest', /not a permitted MAC address/)
  })

  await t.test('changing the addresses keeps those that remain', async t => {
    const port = (await make({})).body.port as Item & { fixed_ips: { subnet_id: string; ip_address: string }[] }
    const [kept] = port.fixed_ips
    const change = (fixed_ips: object[]) => call(`PUT /v2.0/ports/${port.id}`, A, { port: { fixed_ips } })
    t.match((await change([kept!, { ip_address: '10.20.0.60' }])).body.port, {
      fixed_ips: [kept, { subnet_id: v4.id, ip_address: '10.20.0.60' }],
    })
    t.match(
      (await change([{ subnet_id: v4.id }])).body.port,
      { fixed_ips: [kept] },
      'the address in that subnet is kept',
    )
    isFault(t, await change([{ ip_address: '10.20.0.50' }]), 409, 'IpAddressAlreadyAllocated')
    t.match(
      (await call(`GET /v2.0/ports/${port.id}`, A)).body.port,
      { fixed_ips: [kept] },
      'a refused change changes nothing',
    )
    t.strictSame(((await change([])).body.port as Item).fixed_ips, [])
  })

  await t.test('tenants cannot delete or release the load balancer service’s ports', async t => {
    const request = { networkId: network.id, projectId: 'a', fixedIps: [{ subnetId: v4.id }], name: 'vip' }
    const vip = await driver.ensurePort({ ...request, deviceId: 'lb-1', deviceOwner: PORT_OWNER.vip })
    t.match((await call(`GET /v2.0/ports/${vip.id}`, A)).body.port, { device_owner: 'Octavia', status: 'ACTIVE' })
    isFault(t, await call(`DELETE /v2.0/ports/${vip.id}`, A), 409, 'ServicePortInUse', /cannot be deleted directly/)
    for (const port of [{ device_id: '' }, { device_owner: '' }, { fixed_ips: [] }]) {
      isFault(t, await call(`PUT /v2.0/ports/${vip.id}`, A, { port }), 409, 'PortInUse')
    }
    t.equal((await call(`PUT /v2.0/ports/${vip.id}`, A, { port: { name: 'my VIP' } })).status, 200)
    const again = await driver.ensurePort({ ...request, deviceId: 'lb-1', deviceOwner: PORT_OWNER.vip })
    t.equal(again.id, vip.id, 'the service finds a renamed port')
    isFault(t, await make({ device_owner: 'Octavia' }), 403, 'PolicyNotAuthorized', /device_owner/)
    isFault(t, await make({ device_owner: 'network:dhcp' }), 403, 'PolicyNotAuthorized', /device_owner/)
    t.equal((await call(`DELETE /v2.0/ports/${vip.id}`, ADMIN)).status, 204)
  })

  await t.test('the ports of load balancers in OVN are nobody else’s, not even the network’s owner’s', async t => {
    const outer = await create('network', { 'router:external': true }, ADMIN)
    await create('subnet', { network_id: outer.id, cidr: '203.0.113.0/24' }, ADMIN)
    const floating = await create('floatingip', { floating_network_id: outer.id })
    const router = await create('router', {})
    for (const [deviceOwner, name] of [
      [PORT_OWNER.balancer, `ovn-balancer-${network.id}`],
      [PORT_OWNER.probe, `ovn-lb-hm-${v4.id}`],
    ] as const) {
      const request = { networkId: network.id, projectId: 'a', fixedIps: [{ subnetId: v4.id }], name, deviceId: name }
      const hidden = await driver.ensurePort({ ...request, deviceOwner })
      const [fixed] = hidden.fixedIps
      const path = `/v2.0/ports/${hidden.id}`
      t.match((await call(`GET ${path}`, A)).body.port, { name, device_owner: deviceOwner }, 'as other ports there')
      t.equal((await call(`GET ${path}`, B)).status, 404)
      isFault(t, await call(`DELETE ${path}`, A), 409, 'ServicePortInUse', /cannot be deleted directly/)
      for (const port of [
        { name: 'mine' },
        { description: 'mine' },
        { admin_state_up: false },
        { device_id: '' },
        { device_owner: '' },
        { fixed_ips: [] },
        { fixed_ips: [{ subnet_id: v4.id, ip_address: fixed?.address }, { subnet_id: v6.id }] },
        { security_groups: [] },
        { port_security_enabled: false },
        { allowed_address_pairs: [{ ip_address: '10.20.0.9' }] },
      ])
        isFault(t, await call(`PUT ${path}`, A, { port }), 409, 'PortInUse', /A service of Krater uses it/)
      t.match((await call(`GET ${path}`, A)).body.port, { name, fixed_ips: [{ ip_address: fixed?.address }] })
      isFault(t, await make({ fixed_ips: [{ ip_address: fixed?.address }] }), 409, 'IpAddressAlreadyAllocated')
      isFault(
        t,
        await call(`PUT /v2.0/routers/${router.id}/add_router_interface`, A, { port_id: hidden.id }),
        409,
        'PortInUse',
      )
      const association = { floatingip: { port_id: hidden.id } }
      const associated = await call(`PUT /v2.0/floatingips/${floating.id}`, A, association)
      isFault(t, associated, 400, 'BadRequest', /a service of Krater uses it/)
      isFault(t, await call(`DELETE /v2.0/subnets/${v4.id}`, A), 409, 'SubnetInUse')
      for (const token of [A, ADMIN]) {
        isFault(t, await make({ device_owner: deviceOwner }, token), 400, 'InvalidInput', /only services of Krater/)
        const own = (await make({}, token)).body.port as Item
        const forged = await call(`PUT /v2.0/ports/${own.id}`, token, { port: { device_owner: deviceOwner } })
        isFault(t, forged, 400, 'InvalidInput', /only services of Krater/)
      }
      t.equal((await call(`DELETE ${path}`, ADMIN)).status, 204, 'an administrator may')
    }
  })

  await t.test('a network’s owner sees and may delete other projects’ ports on it', async t => {
    const foreign = (await make({ project_id: 'b' }, ADMIN)).body.port as Item
    t.equal((await call(`GET /v2.0/ports/${foreign.id}`, A)).status, 200)
    t.equal((await call(`GET /v2.0/ports/${foreign.id}`, B)).status, 200)
    isFault(t, await call(`PUT /v2.0/ports/${foreign.id}`, A, { port: { name: 'x' } }), 403, 'PolicyNotAuthorized')
    t.equal((await call(`DELETE /v2.0/ports/${foreign.id}`, A)).status, 204)
  })
})

t.test('creating a port on a network that is deleted at the same time fails with 404', async t => {
  const network = (await call('POST /v2.0/networks', A, { network: {} })).body.network as Item
  const request = { networkId: network.id, fixedIps: [], projectId: 'a', name: 'n', deviceId: 'd', deviceOwner: 'o' }
  const deleting = await db.transaction()
  await deleting('network').where({ id: network.id }).delete()
  const posted = call('POST /v2.0/ports', A, { port: { network_id: network.id } })
  const ensured = t.rejects(driver.ensurePort(request), { message: `Network ${network.id} could not be found.` })
  // By the time both wait for the deletion, they have read the network.
  for (let tries = 0; tries < 1000; tries++) {
    const { rows } = await db.raw(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    )
    if (rows.length === 2) break
    await sleep(5)
  }
  await deleting.commit()
  isFault(t, await posted, 404, 'NetworkNotFound')
  await ensured
})
