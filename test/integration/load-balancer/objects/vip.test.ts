import t from 'tap'
import { AddressTaken, type NetworkDriver, NoAddressLeft } from '../../../../controller/network/driver.js'
import { createNoopNetworkDriver } from '../../../../controller/network/noop/driver.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { idIn } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'

t.test('sources of the VIP', async t => {
  const noop = createNoopNetworkDriver()
  const bound = new Map<string, string | null>()
  const released: string[] = []
  const PORT = '22222222-2222-4222-8222-222222222222'
  const NETWORK = '33333333-3333-4333-8333-333333333333'
  const [IPV4, FULL, IPV6] = [
    '44444444-4444-4444-8444-444444444444',
    '55555555-5555-4555-8555-555555555555',
    '66666666-6666-4666-8666-666666666666',
  ]
  const subnetOf = (id: string, projectId = OWN) => {
    const ipVersion = id === IPV6 ? (6 as const) : (4 as const)
    return {
      id,
      networkId: NETWORK,
      projectId,
      ipVersion,
      cidr: id === IPV6 ? '2001:db8::/64' : id === FULL ? '10.1.0.0/30' : '10.0.0.0/24',
      gatewayIp: null,
      hostRoutes: [],
      overlapsManagement: false,
    }
  }
  // FOREIGN's objects are invisible to others, as the driver's contract requires.
  const network: NetworkDriver = {
    ...noop,
    findSubnet: async (caller, id) =>
      [IPV4, FULL, IPV6].includes(id) && caller.project?.id === OWN ? subnetOf(id) : null,
    findNetwork: async (caller, id) =>
      id === NETWORK && caller.project?.id === OWN
        ? { id, projectId: OWN, shared: false, mtu: 1500, isPhysical: false, subnetIds: [IPV6, FULL, IPV4] }
        : null,
    subnets: async ids => ids.map(id => subnetOf(id)),
    freeAddresses: async id => (id === FULL ? 1 : 100),
    findPort: async (caller, id) => {
      if (id !== PORT || caller.project?.id !== OWN) return null
      const port = await noop.port(id)
      return port === null
        ? null
        : {
            ...port,
            deviceId: bound.get(id) ?? '',
            fixedIps: [
              { subnetId: IPV4, address: '10.0.0.9' },
              { subnetId: IPV6, address: '2001:db8::9' },
            ],
          }
    },
    ensurePort: async request => {
      const [fixedIp] = request.fixedIps
      if (fixedIp?.subnetId === FULL) throw new NoAddressLeft('No address is left.')
      if (fixedIp?.address === '10.0.0.66') throw new AddressTaken('10.0.0.66 is in use.')
      return noop.ensurePort(request)
    },
    bindPort: async (id, device) => {
      bound.set(id, device?.deviceId ?? null)
    },
    deletePort: async id => {
      released.push(id)
    },
  }
  const api = await startTestApi({ network })
  t.teardown(api.stop)
  const create = (loadbalancer: object, token?: string) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer }, token)

  await t.test('by subnet', async t => {
    t.match(await create({ vip_subnet_id: IPV4, vip_address: '10.0.0.5' }), {
      status: 201,
      body: { loadbalancer: { vip_address: '10.0.0.5', vip_network_id: NETWORK, vip_port_id: String } },
    })
    t.match(await create({ vip_subnet_id: IPV4, vip_address: '10.0.0.66' }), {
      status: 409,
      body: { faultstring: '10.0.0.66 is in use.' },
    })
    t.equal((await create({ vip_subnet_id: IPV4, vip_address: '10.9.0.5' })).status, 400)
    t.equal((await create({ vip_subnet_id: FULL })).status, 409)
    t.match(await create({ vip_subnet_id: SUBNET }), {
      status: 400,
      body: { faultstring: `Subnet ${SUBNET} not found.` },
    })
  })
  await t.test('by network: an IPv4 subnet with free addresses comes first', async t => {
    t.match(await create({ vip_network_id: NETWORK }), { status: 201, body: { loadbalancer: { vip_subnet_id: IPV4 } } })
    t.match(await create({ vip_network_id: NETWORK, vip_address: '2001:db8::5' }), {
      status: 201,
      body: { loadbalancer: { vip_subnet_id: IPV6, vip_address: '2001:db8::5' } },
    })
    t.equal((await create({ vip_network_id: NETWORK, vip_address: '10.9.0.1' })).status, 400)
    t.match(await create({ vip_network_id: SUBNET }), {
      status: 400,
      body: { faultstring: `Network ${SUBNET} not found.` },
    })
  })
  await t.test('by port: a user’s port is bound once and not owned', async t => {
    t.equal((await create({ vip_port_id: PORT })).status, 400, 'a port with several addresses is refused')
    t.equal((await create({ vip_port_id: PORT, vip_address: '10.0.0.8' })).status, 400)
    const created = await create({ vip_port_id: PORT, vip_subnet_id: IPV6 })
    t.match(created, { status: 201, body: { loadbalancer: { vip_address: '2001:db8::9', vip_port_id: PORT } } })
    t.equal(bound.get(PORT), `lb-${idIn(created, 'loadbalancer')}`)
    t.match(await create({ vip_port_id: PORT, vip_subnet_id: IPV6 }), {
      status: 400,
      body: { faultstring: /already used/ },
    })
    t.match(await api.database('load_balancer').where({ vip_port_id: PORT }).first(), { owns_vip_port: false })
    t.match(await create({ vip_port_id: SUBNET }), { status: 400, body: { faultstring: `Port ${SUBNET} not found.` } })
  })
  await t.test('another project’s subnets, networks and ports are not found', async t => {
    for (const vip of [{ vip_subnet_id: IPV4 }, { vip_network_id: NETWORK }, { vip_port_id: PORT }]) {
      t.match(await create(vip, tokenOf('member', FOREIGN)), { status: 400, body: { faultstring: /not found\.$/ } })
    }
  })
  await t.test('a failed create releases the VIP port that it made', async t => {
    await api.database.raw('ALTER TABLE load_balancer ADD CONSTRAINT broken CHECK (name <> ?)'.replace('?', "'broken'"))
    t.match(await create({ vip_subnet_id: IPV4, name: 'broken' }), { status: 500, body: { faultcode: 'Server' } })
    t.equal(released.length, 1)
  })
  await t.test('a missing VIP, an unknown provider and unsupported options are refused', async t => {
    t.match(await create({ name: 'x' }), {
      status: 400,
      body: { faultstring: 'Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.' },
    })
    t.match(await create({ vip_subnet_id: IPV4, provider: 'acme' }), {
      status: 400,
      body: { faultstring: `Provider 'acme' is not enabled.` },
    })
    t.match(await create({ vip_subnet_id: IPV4, vip_qos_policy_id: SUBNET }), {
      status: 501,
      body: { faultcode: 'Server', faultstring: /^Provider 'amphora' does not support a requested option: / },
    })
    t.equal((await create({ vip_subnet_id: IPV4, additional_vips: [{ ip_address: '10.0.0.1' }] })).status, 400)
  })
})
