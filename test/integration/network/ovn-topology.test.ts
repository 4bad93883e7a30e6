import t from 'tap'
import { PORT_OWNER, ROUTER_PORT_OWNER } from '../../../controller/network/driver.js'
import { readPorts } from '../../../controller/network/ovn/read-topology.js'
import { createTestDatabase } from '../../support/database/database.js'
import { networkRows } from '../../support/worlds/network-rows.js'

t.test('addresses that no machine has need no port in OVN', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(() => testDatabase.drop())
  const rows = networkRows(testDatabase.of('network'))
  const subnet = await rows.subnet(await rows.network(), '10.1.0.0/16', null)
  const port = (number: number, device_owner: string) => rows.port([[subnet, `10.1.0.${number}`]], { device_owner })
  const machine = await port(1, '')
  const amphora = await port(2, PORT_OWNER.amphora)
  const balancer = await port(3, PORT_OWNER.balancer)
  await port(4, PORT_OWNER.probe)
  await port(5, ROUTER_PORT_OWNER.floatingIp)
  await rows.leg(await rows.router(), [[subnet, '10.1.0.6']])
  await rows.leg(await rows.router(), [[subnet, '10.1.0.7']], true)
  await rows.manyPorts(subnet, '10.1.16.0', 1_000)
  const found = await readPorts(testDatabase.of('network'))
  t.same(
    found.map(({ id, role }) => [id, role]),
    [
      [machine.id, 'machine'],
      [amphora.id, 'machine'],
      [balancer.id, 'balancer'],
    ],
  )
})
