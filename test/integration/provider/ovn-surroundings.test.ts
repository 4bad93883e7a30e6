import t from 'tap'
import { readSurroundings } from '../../../controller/provider/ovn/read-facts.js'
import { networksConcerned } from '../../../controller/provider/ovn/surroundings.js'
import { createTestDatabase } from '../../support/database/database.js'
import { rowsLookedAt } from '../../support/database/rows-looked-at.js'
import { networkRows, type PortRow, type SubnetRow } from '../../support/worlds/network-rows.js'

const VIP = '10.1.0.100'

t.test('what is around a VIP', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(() => testDatabase.drop())
  const rows = networkRows(testDatabase.of('network'))
  const network = async (cidr: string, columns: object = {}): Promise<SubnetRow> =>
    rows.subnet(await rows.network(columns), cidr, null)
  let legs = 0
  const join = async (router: string, ...subnets: SubnetRow[]) => {
    for (const subnet of subnets) {
      legs += 1
      await rows.leg(router, [[subnet, subnet.cidr.replace('.0/24', `.${200 + legs}`)]])
    }
  }
  const around = (home: SubnetRow, more: { projectId?: string; members?: string[]; memberSubnets?: string[] } = {}) =>
    readSurroundings(testDatabase.of('network'), {
      ...{ networkId: home.networkId, projectId: 'project', vips: [VIP], members: [], memberSubnets: [], ...more },
    })
  const clientNetworks = async (home: SubnetRow) => (await around(home)).clientNetworks
  const entranceBy = ({ networkId, macAddress }: PortRow) => ({ networkId, macAddress })
  const ids = (...subnets: SubnetRow[]) => subnets.map(({ networkId }) => networkId).sort()

  await t.test('holds the networks of its project that routers join, also from router to router', async t => {
    const [home, near, far] = [await network('10.1.0.0/24'), await network('10.2.0.0/24'), await network('10.3.0.0/24')]
    await join(await rows.router(), home, near)
    await join(await rows.router(), near, far)
    await join(await rows.router({ admin_state_up: false }), home, await network('10.4.0.0/24'))
    t.same(await clientNetworks(home), ids(home, near, far))
  })

  await t.test('ends at networks and legs that are down', async t => {
    const [home, near, down] = [
      await network('10.1.0.0/24'),
      await network('10.2.0.0/24'),
      await network('10.3.0.0/24', { admin_state_up: false }),
    ]
    const router = await rows.router()
    await join(router, home, near, down)
    const outside = await network('203.0.113.0/24', { project_id: 'admin', external: true, admin_state_up: false })
    await rows.leg(router, [[outside, '203.0.113.9']], true)
    t.match(await around(home), {
      isUp: true,
      clientNetworks: ids(home, near),
      gatewayRouters: [],
      entrances: [],
    })
    t.match(await around(down), { isUp: false })
    await testDatabase.of('network')('port').where({ network_id: near.networkId }).update({ admin_state_up: false })
    t.same(await clientNetworks(home), ids(home))
  })

  await t.test('holds no shared network that the router of another project joins to the VIP', async t => {
    const home = await network('10.1.0.0/24', { project_id: 'attacker' })
    const shared = await network('10.5.0.0/24', { project_id: 'admin', shared: true })
    const victim = await network('10.6.0.0/24', { project_id: 'victim' })
    await join(await rows.router({ project_id: 'attacker' }), home, shared)
    const edge = await rows.router({ project_id: 'victim' })
    await join(edge, shared, victim)
    const outside = await network('203.0.113.0/24', { project_id: 'admin', external: true })
    await rows.leg(edge, [[outside, '203.0.113.9']], true)
    t.same(await around(home), {
      ...{ isUp: true, clientNetworks: ids(home) },
      ...{ gatewayRouters: [], entrances: [], floatingIps: [], machines: [] },
    })
  })

  await t.test(
    'holds the networks that others join to a shared network of the VIP, and nothing behind them',
    async t => {
      const home = await network('10.1.0.0/24', { project_id: 'admin', shared: true })
      const guest = await network('10.7.0.0/24', { project_id: 'guest' })
      const behind = await network('10.8.0.0/24', { project_id: 'guest' })
      const edge = await rows.router({ project_id: 'guest' })
      await join(edge, home, guest)
      await join(await rows.router({ project_id: 'guest' }), guest, behind)
      const outside = await network('203.0.113.0/24', { project_id: 'admin', external: true })
      const gateway = await rows.leg(edge, [[outside, '203.0.113.10']], true)
      const { clientNetworks, gatewayRouters, entrances } = await around(home)
      t.same(
        { clientNetworks, gatewayRouters, entrances },
        { clientNetworks: ids(home, guest), gatewayRouters: [edge], entrances: [entranceBy(gateway)] },
      )
    },
  )

  await t.test('is also entered by the legs that routers with a gateway have on networks of others', async t => {
    const [home, near] = [await network('10.1.0.0/24'), await network('10.2.0.0/24')]
    const shared = await network('10.5.0.0/24', { project_id: 'admin', shared: true })
    const edge = await rows.router()
    await join(edge, home, near)
    await join(await rows.router(), near, shared)
    const foreign = await rows.leg(edge, [[shared, '10.5.0.9']])
    t.match(await around(home), { gatewayRouters: [], entrances: [] }, 'without a gateway it balances nothing')
    const outside = await network('203.0.113.0/24', { project_id: 'admin', external: true })
    const gateway = await rows.leg(edge, [[outside, '203.0.113.11']], true)
    t.match(await around(home), {
      ...{ clientNetworks: ids(home, near), gatewayRouters: [edge] },
      entrances: [foreign, gateway].map(entranceBy).sort((a, b) => (a.networkId < b.networkId ? -1 : 1)),
    })
    await testDatabase.of('network')('port').where({ id: foreign.id }).update({ admin_state_up: false })
    t.same((await around(home)).entrances, [entranceBy(gateway)])
  })

  await t.test('ends at routers and networks for which the address is another one', async t => {
    const home = await network('10.1.0.0/25')
    const same = await network('10.1.0.0/24')
    const beside = await network('10.9.0.0/24')
    const router = await rows.router()
    await rows.leg(router, [[home, '10.1.0.1']])
    await rows.leg(router, [[same, '10.1.0.129']])
    await rows.leg(router, [[beside, '10.9.0.1']])
    t.same(await clientNetworks(home), ids(home))
  })

  await t.test('holds machines on its own network, and on the subnets that members name', async t => {
    const [home, near] = [await network('10.1.0.0/24'), await network('10.10.0.0/24')]
    await join(await rows.router(), home, near)
    const machine = await rows.port([[home, '10.1.0.7']])
    const other = await rows.port([[near, '10.10.0.7']])
    await rows.port([[near, '10.10.0.8']], { device_owner: 'network:router_interface' })
    const members = ['10.1.0.7', '10.10.0.7', '10.10.0.8']
    const found = async (memberSubnets: string[]) =>
      (await around(home, { members, memberSubnets })).machines.map(({ portId }) => portId)
    t.same(await found([]), [machine.id])
    t.same(await found([near.id]), [machine.id, other.id])
    const stranger = { projectId: 'stranger', members, memberSubnets: [near.id] }
    t.same((await around(home, stranger)).machines, [], 'nobody probes what is another project’s')
  })

  await t.test('is found without a look at what else there is', async t => {
    const home = await network('10.1.0.0/24')
    const near = await network('10.11.0.0/24')
    await join(await rows.router(), home, near)
    const machine = await rows.port([[home, '10.1.0.7']])
    const crowd = await network('10.64.0.0/16')
    await rows.manyPorts(home, '10.1.16.0', 1_500)
    await rows.manyPorts(crowd, '10.64.16.0', 1_500)
    await rows.manyRouters(crowd, '10.64.32.0', 500)
    const database = testDatabase.of('network')
    await database.raw('ANALYZE')
    const place = {
      networkId: home.networkId,
      projectId: 'project',
      vips: [VIP],
      members: ['10.1.0.7'],
      memberSubnets: [home.id],
    }
    const looked = await database.transaction(trx =>
      rowsLookedAt(trx, ['port', 'fixed_ip'], async () => {
        t.same(
          (await readSurroundings(trx, place)).machines.map(({ portId }) => portId),
          [machine.id],
        )
        t.same((await networksConcerned(trx, [home.networkId])).sort(), ids(home, near))
      }),
    )
    t.ok(looked < 200, `${looked} rows of 3000`)
  })
})
