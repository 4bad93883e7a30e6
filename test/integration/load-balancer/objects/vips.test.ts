import { randomUUID } from 'node:crypto'
import t from 'tap'
import { bootstrapNetworks } from '../../../../controller/network/bootstrap.js'
import { OWN } from '../../../support/clients/callers.js'
import { at, idIn, type Json } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { startApiOnNetworks } from '../../../support/worlds/local-networks.js'

type Vip = { subnet_id: string; ip_address: string; port_id: string }
const NOOP = ['noop_driver', 'amphora']
const provider = 'noop_driver'

t.test('additional VIPs on the local driver’s networks', async t => {
  const { api, networks } = await startApiOnNetworks({ providers: NOOP })
  t.teardown(api.stop)
  const create = (loadbalancer: object) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { provider, ...loadbalancer } })
  const { id: network, subnets } = await networks.network(OWN, '10.1.0.0/24', '10.2.0.0/24', '2001:db8:3::/64')
  const [one, two, six] = subnets as [string, string, string]
  const elsewhere = await networks.network(OWN, '10.4.0.0/24')

  await t.test('additional VIPs share the port of the first VIP', async t => {
    const created = await create({
      vip_subnet_id: one,
      additional_vips: [
        { subnet_id: two, ip_address: '10.2.0.77' },
        { subnet_id: six, port_id: SUBNET },
      ],
    })
    t.equal(created.status, 201, created.text)
    const [address, port] = ['vip_address', 'vip_port_id'].map(key => String(at(created.body, 'loadbalancer', key)))
    const vips = at(created.body, 'loadbalancer', 'additional_vips') as Vip[]
    t.match(vips, [
      { subnet_id: two, ip_address: '10.2.0.77', port_id: port },
      { subnet_id: six, ip_address: /^2001:db8:3::/, port_id: port },
    ])
    t.same(Object.keys(vips[0] ?? {}).sort(), ['ip_address', 'port_id', 'subnet_id'])
    t.same(await networks.addressesOf(port ?? ''), [
      [one, address],
      [two, '10.2.0.77'],
      [six, vips[1]?.ip_address],
    ])
    const shown = await api.ask('GET', `/v2/lbaas/loadbalancers/${idIn(created, 'loadbalancer')}`)
    t.same(at(shown.body, 'loadbalancer', 'additional_vips'), vips)
    t.match(await create({ vip_subnet_id: one, additional_vips: [{ subnet_id: two, ip_address: '10.2.0.77' }] }), {
      status: 409,
      body: { faultstring: /10\.2\.0\.77/ },
    })
  })
  await t.test('the first VIP takes a subnet that no additional VIP names', async t => {
    const created = await create({ vip_network_id: network, additional_vips: [{ subnet_id: one }] })
    t.match(created, { status: 201, body: { loadbalancer: { vip_subnet_id: two, vip_network_id: network } } })
  })
  await t.test('VIPs on a user’s port must be addresses of that port', async t => {
    const port = await networks.port(OWN, network, [one, two, six])
    const [, second, third] = await networks.addressesOf(port)
    const body = {
      vip_port_id: port,
      additional_vips: [{ subnet_id: two, ip_address: second?.[1] }, { subnet_id: six }],
    }
    const wrong = { ...body, additional_vips: [{ subnet_id: two, ip_address: '10.2.0.250' }] }
    t.match(await create({ ...wrong, vip_subnet_id: one }), {
      status: 400,
      body: { faultstring: /does not have the address 10\.2\.0\.250/ },
    })
    t.match(await create({ ...body, additional_vips: [] }), { status: 400, body: { faultstring: /several addresses/ } })
    t.match(await create(body), {
      status: 201,
      body: {
        loadbalancer: {
          vip_subnet_id: one,
          vip_port_id: port,
          additional_vips: [
            { subnet_id: two, ip_address: second?.[1], port_id: port },
            { subnet_id: six, ip_address: third?.[1], port_id: port },
          ],
        },
      },
    })
    const bare = await networks.port(OWN, network, [one])
    t.match(await create({ vip_port_id: bare, additional_vips: [{ subnet_id: two }] }), {
      status: 400,
      body: { faultstring: /does not have an address on subnet/ },
    })
  })
  await t.test('contradictory VIPs are refused', async t => {
    const ports = async () => (await networks.database('port').count().first())?.count
    const before = await ports()
    const refused: [object, RegExp][] = [
      [{ vip_subnet_id: one, additional_vips: [{ subnet_id: one }] }, /Duplicate VIP subnet/],
      [{ vip_subnet_id: one, additional_vips: [{ subnet_id: two }, { subnet_id: two }] }, /Duplicate VIP subnet/],
      [{ vip_subnet_id: one, additional_vips: [{ subnet_id: elsewhere.subnets[0] }] }, /belong to the same network/],
      [{ vip_network_id: network, additional_vips: [{ subnet_id: elsewhere.subnets[0] }] }, /same network/],
      [{ vip_subnet_id: one, additional_vips: [{ subnet_id: two, ip_address: '10.1.0.9' }] }, /is not on subnet/],
      [
        { vip_subnet_id: one, additional_vips: [{ ip_address: '10.1.0.9' }] },
        /additional_vips\[0\]\.subnet_id.*Mandatory/,
      ],
      [
        { vip_subnet_id: one, additional_vips: [{ subnet_id: two, bogus: 1 }] },
        /Unknown attribute .*additional_vips\[0\]: bogus/,
      ],
      [{ vip_subnet_id: one, additional_vips: [{ subnet_id: 'two' }] }, /Value should be UUID format/],
      [{ vip_subnet_id: one, additional_vips: {} }, /Value should be a list/],
    ]
    for (const [body, faultstring] of refused) {
      t.match(await create(body), { status: 400, body: { faultstring } }, JSON.stringify(body))
    }
    t.equal(await ports(), before, 'a refused create leaves no port')
  })
})

t.test('with the noop network driver, every id exists and has the family that the request implies', async t => {
  const api = await startTestApi({ providers: NOOP })
  t.teardown(api.stop)
  const create = (loadbalancer: object) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { provider, ...loadbalancer } })
  const [first, second, third] = [randomUUID(), randomUUID(), randomUUID()]
  const places = [{ vip_subnet_id: first }, { vip_network_id: third, vip_subnet_id: first }, { vip_network_id: third }]
  for (const place of [...places, { vip_port_id: third, vip_subnet_id: first }, { vip_port_id: third }]) {
    for (const vip_address of ['2001:db8::5', '192.0.2.5']) {
      const loadbalancer = { ...place, vip_address }
      t.match(await create(loadbalancer), { status: 201, body: { loadbalancer } }, JSON.stringify(loadbalancer))
    }
  }
  for (const [main, other] of [
    ['192.0.2.6', '2001:db8::6'],
    ['2001:db8::6', '192.0.2.6'],
  ]) {
    for (const place of [{ vip_subnet_id: first }, { vip_port_id: third, vip_subnet_id: first }]) {
      const loadbalancer = {
        ...place,
        vip_address: main,
        additional_vips: [{ subnet_id: second, ip_address: other }],
      }
      t.match(await create(loadbalancer), { status: 201, body: { loadbalancer } }, JSON.stringify(loadbalancer))
    }
  }
})

t.test('the VIP’s subnet must have room for the VIP and its amphorae', async t => {
  const { api, networks } = await startApiOnNetworks({ providers: NOOP })
  t.teardown(api.stop)
  const pair = await startApiOnNetworks({ providers: NOOP, settings: { topology: 'ACTIVE_STANDBY' } })
  t.teardown(pair.api.stop)
  // A /29 has five addresses besides its gateway.
  const cases: [number, 'four' | 'six', 'four' | 'six'][] = [
    [2, 'four', 'four'],
    [3, 'four', 'six'],
    [4, 'six', 'six'],
  ]
  for (const [taken, single, standby] of cases) {
    for (const [made, expected] of [
      [{ api, networks }, single],
      [pair, standby],
    ] as const) {
      const { id, subnets } = await made.networks.network(OWN, '2001:db8:9::/64', '10.9.0.0/29')
      for (let count = 0; count < taken; count++) await made.networks.port(OWN, id, [subnets[1] ?? ''])
      const reply = await made.api.ask('POST', '/v2/lbaas/loadbalancers', {
        loadbalancer: { provider, vip_network_id: id },
      })
      t.equal(
        at(reply.body, 'loadbalancer', 'vip_subnet_id'),
        subnets[expected === 'four' ? 1 : 0],
        `${taken} taken: ${reply.text}`,
      )
    }
  }
  const create = (body: object) => api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { provider, ...body } })
  const tiny = await networks.network(OWN, '10.9.0.0/30')
  t.match(await create({ vip_network_id: tiny.id }), { status: 400, body: { faultstring: /has 2 free addresses/ } })
  t.match(
    await create({ vip_subnet_id: tiny.subnets[0] }),
    { status: 201 },
    'a subnet named by the request needs room for the VIP only',
  )
  t.match(await create({ vip_subnet_id: tiny.subnets[0] }), {
    status: 409,
    body: { faultstring: /No more IP addresses/ },
  })
  const empty = await networks.network(OWN)
  t.match(await create({ vip_network_id: empty.id }), { status: 400, body: { faultstring: /has no subnets/ } })
  const busy = await networks.port(OWN, tiny.id, [], 'a-server')
  t.match(await create({ vip_port_id: busy }), {
    status: 400,
    body: { faultstring: /already used by device a-server/ },
  })
})

t.test('security groups and QoS policies of VIPs', async t => {
  const QOS = '22222222-2222-4222-8222-222222222222'
  await t.test('are refused if they are another project’s, or the network driver has none', async t => {
    const { api, networks } = await startApiOnNetworks({ providers: NOOP })
    t.teardown(api.stop)
    const { subnets } = await networks.network(OWN, '10.1.0.0/24')
    const [{ id: foreign }] = (await networks
      .database('security_group')
      .insert({ project_id: 'another' })
      .returning('id')) as [{ id: string }]
    const body = { provider, vip_subnet_id: subnets[0] }
    const create = (extra: object) =>
      api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { ...body, ...extra } })
    const id = idIn(await create({}), 'loadbalancer')
    const update = (loadbalancer: object) => api.ask('PUT', `/v2/lbaas/loadbalancers/${id}`, { loadbalancer })
    for (const ask of [create, update]) {
      t.match(await ask({ vip_sg_ids: [SUBNET] }), {
        status: 400,
        body: { faultstring: `Security Group ${SUBNET} not found.` },
      })
      t.match(await ask({ vip_sg_ids: [foreign] }), {
        status: 400,
        body: { faultstring: `Security Group ${foreign} not found.` },
      })
      t.match(await ask({ vip_qos_policy_id: QOS }), {
        status: 400,
        body: { faultstring: 'Validation failure: VIP QoS policy is not allowed in this deployment.' },
      })
      t.ok([200, 201].includes((await ask({ vip_sg_ids: [] })).status))
    }
  })
  await t.test('are stored, updated and cleared if it has them', async t => {
    const api = await startTestApi({ providers: NOOP })
    t.teardown(api.stop)
    const body = { provider, vip_subnet_id: SUBNET, vip_sg_ids: [QOS, SUBNET, QOS], vip_qos_policy_id: QOS }
    const created = await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: body })
    const stored = { vip_sg_ids: [QOS, SUBNET], vip_qos_policy_id: QOS }
    t.match(created, { status: 201, body: { loadbalancer: stored } })
    const update = (loadbalancer: object) =>
      api.ask('PUT', `/v2/lbaas/loadbalancers/${idIn(created, 'loadbalancer')}`, { loadbalancer })
    t.match(await update({ name: 'x' }), { status: 200, body: { loadbalancer: stored } })
    t.match(await update({ vip_sg_ids: null, vip_qos_policy_id: null }), {
      status: 200,
      body: { loadbalancer: { vip_sg_ids: [], vip_qos_policy_id: null } },
    })
    await api.database('load_balancer').update({ vip_vnic_type: 'direct' })
    t.match(await update({ vip_sg_ids: [SUBNET] }), { status: 400, body: { faultstring: /SR-IOV VIP/ } })
    const amphora: Json = { provider: 'amphora', vip_subnet_id: SUBNET, vip_qos_policy_id: QOS }
    t.equal((await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: amphora })).status, 501)
  })
})

t.test('subnets and members that would harm the amphora are refused', async t => {
  const { api, networks } = await startApiOnNetworks({ providers: NOOP })
  t.teardown(api.stop)
  await bootstrapNetworks(networks.database, { cidr: '10.88.0.0/16', serviceProjectId: 'service' })
  const ask = (path: string, body: object) => api.ask('POST', `/v2/lbaas/${path}`, body)
  // Such subnets may have been stored before the API refused them.
  const stolen = await networks.network(OWN, '10.88.3.0/24')
  const routed = await networks.network(OWN, '10.89.0.0/24')
  const route = (destination: string) => ({ host_routes: JSON.stringify([{ destination, nexthop: '10.89.0.9' }]) })
  await networks.database('subnet').where({ id: routed.subnets[0] }).update(route('10.88.0.0/17'))
  const good = await networks.network(OWN, '10.90.0.0/24')
  const by = { status: 400, body: { faultstring: /overlaps the management network/ } }

  await t.test('VIP subnets that overlap the management network', async t => {
    for (const { id, subnets } of [stolen, routed]) {
      t.match(await ask('loadbalancers', { loadbalancer: { provider, vip_subnet_id: subnets[0] } }), by)
      t.match(await ask('loadbalancers', { loadbalancer: { provider, vip_network_id: id } }), by)
    }
  })
  const created = await ask('loadbalancers', { loadbalancer: { provider, vip_subnet_id: good.subnets[0] } })
  const vip = String(at(created.body, 'loadbalancer', 'vip_address'))
  const definition = { protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' }
  const member = { address: '10.90.0.200', protocol_port: 80 }
  const pool = { loadbalancer_id: idIn(created, 'loadbalancer'), ...definition }
  const id = idIn(await ask('pools', { pool }), 'pool')

  await t.test('members on subnets that overlap the management network', async t => {
    for (const { subnets } of [stolen, routed]) {
      const there = { ...member, subnet_id: subnets[0] }
      t.match(await ask(`pools/${id}/members`, { member: there }), by)
      t.match(await ask('pools', { pool: { ...pool, members: [there] } }), by)
    }
    await networks.database('subnet').where({ id: routed.subnets[0] }).update(route('0.0.0.0/0'))
    const there = { ...member, subnet_id: routed.subnets[0] }
    t.equal((await ask(`pools/${id}/members`, { member: there })).status, 201, 'a default route is harmless')
  })

  await t.test('a member whose address is a VIP of its own load balancer', async t => {
    const loop = { status: 400, body: { faultstring: /is a VIP of its own load balancer/ } }
    t.match(await ask(`pools/${id}/members`, { member: { ...member, address: vip } }), loop)
    t.match(await ask('pools', { pool: { ...pool, members: [{ ...member, address: `::ffff:${vip}` }] } }), loop)
    const batch = await api.ask('PUT', `/v2/lbaas/pools/${id}/members`, { members: [{ ...member, address: vip }] })
    t.match(batch, loop)
    const tree = { provider, vip_subnet_id: good.subnets[0], vip_address: '10.90.0.50' }
    const pools = [{ name: 'p', ...definition, members: [{ ...member, address: '10.90.0.50' }] }]
    t.match(await ask('loadbalancers', { loadbalancer: { ...tree, pools } }), loop)
    const additional = await networks.network(OWN, '10.91.0.0/24', '10.92.0.0/24')
    const further = {
      provider,
      vip_subnet_id: additional.subnets[0],
      additional_vips: [{ subnet_id: additional.subnets[1], ip_address: '10.92.0.9' }],
      pools: [{ name: 'p', ...definition, members: [{ ...member, address: '10.92.0.9' }] }],
    }
    t.match(await ask('loadbalancers', { loadbalancer: further }), loop)
  })
})
