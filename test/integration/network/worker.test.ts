import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { type Logger, pino } from 'pino'
import t, { type Test } from 'tap'
import { interfaceOf } from '../../../controller/network/local/names.js'
import { namespacesNamed } from '../../../controller/network/local/namespace.js'
import { removeOtherRouters } from '../../../controller/network/local/routers/apply.js'
import { routerNamespace, routerNamespaces } from '../../../controller/network/local/routers/router.js'
import { readFiltersOf } from '../../../controller/network/local/security-groups/read-filters.js'
import { guardInterfaces } from '../../../controller/network/local/source-guard.js'
import { Uplinks } from '../../../controller/network/local/uplinks/uplinks.js'
import { startNetworkWorker } from '../../../controller/network/local/worker/worker.js'
import type { PhysicalNetworks } from '../../../controller/network/physical-networks.js'
import { createTestDatabase } from '../../support/database/database.js'
import { eventually as eventuallyWithin } from '../../support/eventually.js'
import { createWorld, giveAddresses } from '../../support/worlds/fabric-world.js'
import { inhabit } from '../../support/worlds/inhabitant.js'
import { createLan, hostState } from '../../support/worlds/lan.js'
import { networkRows, type PortRow } from '../../support/worlds/network-rows.js'

const silent = pino({ level: 'silent' })

/** A limit for what hangs: on a busy machine, a round of the worker alone takes seconds. */
const LIMIT_MS = 60_000
const eventually: typeof eventuallyWithin = (what, ask) => eventuallyWithin(what, ask, LIMIT_MS)

/** The network worker over tables and a fabric of its own, with an external network and a machine there. */
async function createWorkedWorld(t: Test) {
  const world = await createWorld(t)
  const { fabric } = world
  const testDatabase = await createTestDatabase()
  t.teardown(() => testDatabase.drop())
  const rows = networkRows(testDatabase.of('network'))
  const start = async (physicalNetworks: PhysicalNetworks = {}, log: Logger = silent) => {
    const database = testDatabase.of('network')
    const databaseUrl = testDatabase.urlOf('network')
    const worker = await startNetworkWorker({
      ...{ database, databaseUrl },
      ...{ fabric, physicalNetworks, log },
      keepHost: async () => undefined,
      hasSpanningRouters: async () => true,
    })
    t.teardown(worker.stop)
    return worker
  }
  t.teardown(() => removeOtherRouters(fabric, []))
  /** Plugs a machine into a port and lets a program live there. */
  const settle = async (name: string, port: PortRow, prefix: number, gateway?: string) => {
    const namespace = await world.machine(name)
    const { networkId, macAddress, addresses, allowed } = port
    const nic = { networkId, macAddress, mtu: 1450, portId: port.id, namespace, interfaceName: 'eth0' }
    const filters = await readFiltersOf(rows.database, port.id)
    await fabric.attach({ ...nic, addresses: [...addresses, ...allowed], filters })
    await giveAddresses(namespace, ...[...addresses, ...allowed].map(address => `${address}/${prefix}`))
    if (gateway !== undefined) await world.run(namespace, 'ip', 'route', 'add', 'default', 'via', gateway)
    return { namespace, ...(await inhabit(name, (program, args) => world.start(namespace, program, args))) }
  }
  const external = await rows.subnet(await rows.network({ external: true }), '198.51.100.0/24', '198.51.100.1')
  const outside = await settle('outside', await rows.port([[external, '198.51.100.1']]), 24)
  return { ...world, startProgram: world.start, rows, start, settle, external, outside }
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

t.test('a network leads to the LAN while it has a row that says so', async t => {
  const { fabric, rows, start, settle, startProgram } = await createWorkedWorld(t)
  t.teardown(() => new Uplinks(fabric).remove())
  const lan = await createLan(t)
  const before = await hostState(lan.interfaceName, fabric.instance)
  const machine = await lan.machine(11)
  await start({ lan: { interface: lan.interfaceName } })
  const network = await rows.network({ network_type: 'flat', physical_network: 'lan' })
  const subnet = await rows.subnet(network, `${lan.address.v4(0)}/24`, null)
  const port = await rows.port([[subnet, lan.address.v4(100)]])
  const vip = await settle('vip', port, 24)
  const fromLan = await inhabit('lan', (program, args) => startProgram(machine, program, args))
  await eventually('the LAN', async () => (await vip.ask(lan.address.v4(11), soon)) === `lan ${lan.address.v4(100)}`)
  t.equal(await fromLan.ask(lan.address.v4(100)), `vip ${lan.address.v4(11)}`)
  await rows.database('network').where({ id: network }).update({ network_type: 'local', physical_network: null })
  await eventually('the host is as before', async () =>
    isDeepStrictEqual(await hostState(lan.interfaceName, fabric.instance), before),
  )
})

t.test('ports follow their rows, to the end', async t => {
  const { fabric, run, rows, start, settle, startProgram } = await createWorkedWorld(t)
  const subnet = await rows.subnet(await rows.network(), '10.0.0.0/24', null)
  const other = await settle('other', await rows.port([[subnet, '10.0.0.3']]), 24)
  const port = await rows.port([[subnet, '10.0.0.2']])
  const machine = await settle('machine', port, 24)
  await giveAddresses(machine.namespace, '10.0.0.66/24')
  const change = (values: object) => rows.database('port').where({ id: port.id }).update(values)
  const sends = async (from: string, within: { waitMs?: number } = soon) =>
    (await machine.ask('10.0.0.3', { from, ...within })) === `other ${from}`
  // As killed processes leave them.
  await fabric.ensureBridge(randomUUID(), 1450)
  const left = { name: 'p0123456789a', macAddress: 'fa:16:3e:00:00:01', addresses: ['10.0.0.9'] }
  await guardInterfaces(fabric.namespace, [left])
  await start()

  t.notOk(await sends('10.0.0.66'))
  const pairs = [{ ip_address: '10.0.0.64/26', mac_address: port.macAddress }]
  await change({ allowed_address_pairs: JSON.stringify(pairs) })
  await eventually('an address pair', () => sends('10.0.0.66'))
  await change({ allowed_address_pairs: '[]' })
  await eventually('its removal', async () => !(await sends('10.0.0.66')))
  await change({ port_security_enabled: false })
  await eventually('no port security', () => sends('10.0.0.66'))
  await change({ port_security_enabled: true })
  await eventually('port security', async () => !(await sends('10.0.0.66')))
  t.ok(await sends('10.0.0.2', {}))
  await rows.database('fixed_ip').where({ port_id: port.id }).delete()
  await eventually('an address that the port gave up', async () => !(await sends('10.0.0.2')))
  await rows.database('fixed_ip').insert({ subnet_id: subnet.id, address: '10.0.0.66', port_id: port.id })
  await eventually('its new one', () => sends('10.0.0.66'))

  await change({ filtered: true })
  await eventually('a filter', async () => !(await sends('10.0.0.66')))
  const receiver = `require('dgram').createSocket('udp4').on('message', () => console.log('open')).bind(9, () => console.log('ready'))`
  const heard = startProgram(machine.namespace, process.execPath, ['-e', receiver])
  let words = ''
  heard.stdout?.on('data', chunk => (words += chunk))
  const sender = `const socket = require('dgram').createSocket('udp4')
    setInterval(() => socket.send('x', 9, '10.0.0.66'), 1)`
  await eventually('a receiver', () => words.startsWith('ready'))
  startProgram(other.namespace, process.execPath, ['-e', sender])
  await rows.database('fixed_ip').where({ port_id: port.id }).delete()
  await rows.database('port').where({ id: port.id }).delete()
  await eventually('a port that is gone is unplugged', async () => !(await fabric.attachedPorts()).includes(port.id))
  t.equal(words.trim(), 'ready', 'and was never open')
  await eventually('nothing is left of it, of a killed attach, and of a network', async () => {
    const rules = await run(fabric.namespace, 'nft', 'list', 'table', 'bridge', 'krater')
    const { idleBridges } = await fabric.inventory()
    return idleBridges.length === 0 && !rules.includes(interfaceOf(port.id)) && !rules.includes(left.name)
  })
  t.equal(await other.ask('10.0.0.66', soon), null)
})

t.test('a worker that finds itself with another database changes nothing', async t => {
  const { fabric, rows, start, settle } = await createWorkedWorld(t)
  const subnet = await rows.subnet(await rows.network(), '10.0.0.0/24', null)
  const ports = await Promise.all([1, 2, 3].map(host => rows.port([[subnet, `10.0.0.${host}`]])))
  const machines = []
  for (const [at, port] of ports.entries()) machines.push(await settle(`m${at}`, port, 24))
  const ids = ports.map(({ id }) => id)
  await rows.database('fixed_ip').whereIn('port_id', ids).delete()
  await rows.database('port').whereIn('id', ids).delete()
  const said: string[] = []
  await start({}, pino({ level: 'warn' }, { write: (line: string) => void said.push(line) }))
  await eventually('it complains', () => /does not know 3 of the 4 ports that are plugged in here/.test(said.join()))
  t.equal(await machines[0]?.ask('10.0.0.2'), 'm1 10.0.0.1', 'its machines still reach each other')
  await fabric.detach(ids[2]!)
  await eventually('with fewer, it unplugs what has no row', async () => (await fabric.attachedPorts()).length === 1)
})

t.test('security groups follow their rows', async t => {
  const { rows, start, settle } = await createWorkedWorld(t)
  const subnet = await rows.subnet(await rows.network(), '10.0.0.0/24', null)
  const worker = await start()
  const [group, friends] = [await rows.group(), await rows.group()]
  const web = await rows.port([[subnet, '10.0.0.2']], { groups: [group] })
  const friend = await rows.port([[subnet, '10.0.0.3']])
  await settle('web', web, 24)
  const client = await settle('friend', friend, 24)
  const isOpen = async (open: boolean) => ((await client.ask('10.0.0.2', soon)) !== null) === open

  await eventually('nothing passes without a rule', () => isOpen(false))
  const rule = await rows.rule(group, {
    protocol: 'tcp',
    protocol_number: 6,
    port_range_min: 8080,
    port_range_max: 8080,
  })
  await eventually('a rule opens', () => isOpen(true))
  await rows.database('security_group_rule').where({ id: rule }).delete()
  await eventually('its removal closes', () => isOpen(false))
  await rows.rule(group, { remote_group_id: friends })
  await rows.database('port_security_group').insert({ port_id: friend.id, security_group_id: friends })
  await eventually('a new member of a remote group', () => isOpen(true))

  // A crash and a change later, the next worker finds what differs.
  await worker.stop()
  await rows.database('port_security_group').where({ port_id: friend.id }).delete()
  await start()
  await eventually('a worker that starts', () => isOpen(false))
  await rows.database('port').where({ id: web.id }).update({ filtered: false })
  await eventually('a port without filter', () => isOpen(true))

  const vip = await rows.port([[subnet, '10.0.0.100']], { device_owner: 'Octavia', groups: [group] })
  const amphora = await settle('amphora', await rows.amphoraPort(subnet, '10.0.0.9', '10.0.0.100'), 24)
  await eventually('a VIP is filtered', async () => (await client.ask('10.0.0.100', soon)) === null)
  t.equal(await client.ask('10.0.0.9'), 'amphora 10.0.0.3', 'the address of its amphora is not')
  t.equal(await amphora.ask('10.0.0.3', { from: '10.0.0.9' }), 'friend 10.0.0.9')
  await rows.rule(group, { remote_ip_prefix: '10.0.0.3/32' })
  const answers = async (open: boolean) => ((await client.ask('10.0.0.100', soon)) === 'amphora 10.0.0.3') === open
  await eventually('a rule opens the VIP', () => answers(true))
  await rows.database('security_group_rule').where({ security_group_id: group }).delete()
  await eventually('its removal closes the VIP', () => answers(false))
  await rows.database('port').where({ id: vip.id }).update({ filtered: false })
  await eventually('groups that a user’s port had for a machine do not filter the VIP', () => answers(true))
})
