import { pino } from 'pino'
import t, { type Test } from 'tap'
import { namespacesNamed } from '../../../controller/network/local/namespace.js'
import { removeOtherRouters } from '../../../controller/network/local/routers/apply.js'
import { routerNamespace, routerNamespaces } from '../../../controller/network/local/routers/router.js'
import { startNetworkWorker } from '../../../controller/network/local/worker/worker.js'
import { createTestDatabase } from '../../support/database/database.js'
import { eventually } from '../../support/eventually.js'
import { createWorld, giveAddresses } from '../../support/worlds/fabric-world.js'
import { inhabit } from '../../support/worlds/inhabitant.js'
import { networkRows, type PortRow } from '../../support/worlds/network-rows.js'

const log = pino({ level: 'silent' })

/** The network worker over tables and a fabric of its own, with an external network and a machine there. */
async function createWorkedWorld(t: Test) {
  const world = await createWorld(t)
  const { fabric } = world
  const testDatabase = await createTestDatabase()
  t.teardown(() => testDatabase.drop())
  const rows = networkRows(testDatabase.of('network'))
  const start = async () => {
    const options = { database: testDatabase.of('network'), databaseUrl: testDatabase.urlOf('network'), fabric, log }
    const worker = await startNetworkWorker(options)
    t.teardown(worker.stop)
    return worker
  }
  t.teardown(() => removeOtherRouters(fabric, []))
  /** Plugs a machine into a port and lets a program live there. */
  const settle = async (name: string, port: PortRow, prefix: number, gateway?: string) => {
    const namespace = await world.machine(name)
    const { networkId, macAddress, addresses } = port
    const nic = { networkId, macAddress, addresses, mtu: 1450, portId: port.id, namespace, interfaceName: 'eth0' }
    await fabric.attach(nic)
    await giveAddresses(namespace, ...addresses.map(address => `${address}/${prefix}`))
    if (gateway !== undefined) await world.run(namespace, 'ip', 'route', 'add', 'default', 'via', gateway)
    return inhabit(name, (program, args) => world.start(namespace, program, args))
  }
  const external = await rows.subnet(await rows.network({ external: true }), '198.51.100.0/24', '198.51.100.1')
  const outside = await settle('outside', await rows.port([[external, '198.51.100.1']]), 24)
  return { ...world, rows, start, settle, external, outside }
}

const soon = { waitMs: 700 }

t.test('a router follows its rows', async t => {
  const { fabric, rows, start, settle, external, outside } = await createWorkedWorld(t)
  const inside = await rows.subnet(await rows.network(), '10.0.0.0/24', '10.0.0.1')
  const [first, second] = [await rows.port([[inside, '10.0.0.10']]), await rows.port([[inside, '10.0.0.11']])]
  const machine = await settle('first', first, 24, '10.0.0.1')
  await settle('second', second, 24, '10.0.0.1')
  const router = await rows.router()
  const namespaces = () => namespacesNamed(routerNamespaces(fabric.instance))
  await start()

  const leg = await rows.leg(router, [[inside, '10.0.0.1']])
  const gateway = await rows.leg(router, [[external, '198.51.100.10']], true)
  await eventually('SNAT', async () => (await machine.ask('198.51.100.1', soon)) === 'outside 198.51.100.10')
  t.same(namespaces(), [routerNamespace(fabric.instance, router)])

  const floating = await rows.floatingIp(external, '198.51.100.50')
  await rows.associate(floating, { router, subnet: inside, address: '10.0.0.10' })
  await eventually('a floating IP', async () => (await outside.ask('198.51.100.50', soon)) === 'first 198.51.100.1')
  await rows.associate(floating, { router, subnet: inside, address: '10.0.0.11' })
  await eventually('its move', async () => (await outside.ask('198.51.100.50', soon)) === 'second 198.51.100.1')
  await rows.associate(floating, null)
  await eventually('its end', async () => (await outside.ask('198.51.100.50', soon)) === null)

  await rows.database('router').where({ id: router }).update({ enable_snat: false })
  await eventually('no SNAT', async () => (await machine.ask('198.51.100.1', soon)) === null)
  await rows.database('router').where({ id: router }).update({ admin_state_up: false })
  await eventually('a router that is down', () => namespaces().length === 0)
  await rows.database('router').where({ id: router }).update({ admin_state_up: true, enable_snat: true })
  await eventually('a router that is up', async () => (await machine.ask('198.51.100.1', soon)) !== null)

  await rows.removeLeg(leg.id)
  await eventually('a removed leg', async () => !(await fabric.attachedLegs()).includes(leg.id))
  await rows.removeLeg(gateway.id)
  await rows.database('router').where({ id: router }).delete()
  await eventually('a removed router', () => namespaces().length === 0)
  t.same(await fabric.attachedLegs(), [])
})
