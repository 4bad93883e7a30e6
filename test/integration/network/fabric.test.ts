import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { createLog } from '../../../controller/log/log.js'
import type { NetworkDriver } from '../../../controller/network/driver.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { guardHostLeg, unguardHostLeg } from '../../../controller/network/local/host/host-guard.js'
import { ip, links } from '../../../controller/network/local/ip-command.js'
import { uplinkFabricEnd } from '../../../controller/network/local/uplink-frames.js'
import { whoAnswers } from '../../../controller/network/local/visits/lookout.js'
import { ask, createWorld, giveAddresses, nic, server } from '../../support/worlds/fabric-world.js'

const run = promisify(execFile)

t.test('machines and the host reach each other within a network, and nobody on another network', async t => {
  const { fabric, machine, start, instance } = await createWorld(t)
  const [one, two, apart] = [await machine('one'), await machine('two'), await machine('apart')]
  const [networkId, other] = [randomUUID(), randomUUID()]
  await fabric.attach(nic(one, networkId, '198.18.77.2', 'fd77::2'))
  await fabric.attach(nic(two, networkId, '198.18.77.3', 'fd77::3'))
  await fabric.attach(nic(apart, other, '198.18.77.2', 'fd77::2'))
  const leg = {
    networkId,
    mtu: 1450,
    interfaceName: `kt${instance}`,
    addresses: ['198.18.77.1/29', 'fd77::1/64'],
  }
  await fabric.attachHost(leg)
  await giveAddresses(one, '198.18.77.2/29', 'fd77::2/64')
  await giveAddresses(two, '198.18.77.3/29', 'fd77::3/64')
  await giveAddresses(apart, '198.18.77.2/29', 'fd77::2/64')
  const servers = [start(one, process.execPath, server('one')), start(apart, process.execPath, server('apart'))]
  await Promise.all(servers.map(child => once(child.stdout!, 'data')))

  t.equal(await ask(two, '198.18.77.2'), 'one')
  t.equal(await ask(two, 'fd77::2'), 'one')
  t.equal(await ask(null, '198.18.77.2'), 'one', 'from the host')
  t.equal(await ask(null, 'fd77::2'), 'one', 'from the host over IPv6')

  const before = await links(null)
  await fabric.attachHost({ ...leg, addresses: ['198.18.77.1/29'] })
  t.strictSame(await links(null), before, 'the host’s interface stays the same')
  const [{ addr_info }] = JSON.parse(await ip(['-json', 'address', 'show', 'dev', leg.interfaceName]))
  t.strictSame(
    addr_info.filter((a: { scope: string }) => a.scope === 'global').map((a: { local: string }) => a.local),
    ['198.18.77.1'],
    'addresses no longer desired are removed',
  )
  const mac = before.find(link => link.ifname === leg.interfaceName)!.address
  await ip(['link', 'delete', leg.interfaceName])
  await fabric.attachHost(leg)
  t.equal(
    (await links(null)).find(link => link.ifname === leg.interfaceName)!.address,
    mac,
    'the interface is recreated with the same MAC address',
  )
})

t.test('machines reach the host only at the open address and ports', async t => {
  const { fabric, machine, start, instance } = await createWorld(t)
  const one = await machine('one')
  const [networkId, other] = [randomUUID(), randomUUID()]
  const [leg, apart] = [`kt${instance}-a`, `kt${instance}-b`]
  t.teardown(() => Promise.all([unguardHostLeg(leg), unguardHostLeg(apart)]))
  const addresses = ['198.18.77.1/29', 'fd77::1/64']
  const rules = { addresses: ['198.18.77.1'], open: [{ protocol: 'tcp' as const, port: 8080 }], isolated: false }
  await guardHostLeg(leg, rules)
  await guardHostLeg(leg, rules)
  await guardHostLeg(apart, { addresses: ['198.18.78.1'], open: [{ protocol: 'tcp', port: 8080 }], isolated: true })
  await fabric.attachHost({ networkId, mtu: 1450, interfaceName: leg, addresses })
  await fabric.attachHost({ networkId: other, mtu: 1450, interfaceName: apart, addresses: ['198.18.78.1/29'] })
  await fabric.attach(nic(one, networkId, '198.18.77.2', 'fd77::2'))
  await giveAddresses(one, '198.18.77.2/29', 'fd77::2/64')
  await ip(['-n', one, 'route', 'add', '198.18.78.0/29', 'via', '198.18.77.1'])
  const host = `for (const port of [8080, 8081])
    require('net').createServer(s => s.on('error', () => {}).end('host')).listen(port, '::', () => console.log('ready'))`
  const servers = [start(null, process.execPath, ['-e', host]), start(one, process.execPath, server('one'))]
  await Promise.all(servers.map(child => once(child.stdout!, 'data')))

  t.equal(await ask(one, '198.18.77.1'), 'host', 'the open port')
  t.equal(await ask(null, '198.18.77.2'), 'one', 'the host reaches machines')
  t.equal(await ask(null, 'fd77::2'), 'one', 'over IPv6 too')
  t.equal(await ask(null, '198.18.78.1'), 'host', 'the host reaches itself')
  const [{ addr_info }] = JSON.parse(await ip(['-json', '-6', 'address', 'show', 'dev', leg, 'scope', 'link']))
  const refused = (address: string, port = 8080) =>
    ask(one, address, undefined, 1500, port).then(
      () => address,
      () => null,
    )
  t.strictSame(
    await Promise.all([
      refused('198.18.77.1', 8081),
      refused('fd77::1'),
      refused(`${addr_info[0].local}%eth0`),
      refused('198.18.78.1'),
    ]),
    [null, null, null, null],
    'no other port, family or address of the host',
  )
})

t.test('a machine sends only from its own MAC and IP addresses', async t => {
  const { fabric, machine, start, instance } = await createWorld(t)
  const [victim, attacker] = [await machine('victim'), await machine('attacker')]
  const networkId = randomUUID()
  await fabric.attach(nic(victim, networkId, '198.18.77.2', 'fd77::2'))
  // The last two act as a VIP, which may move between machines.
  const own = nic(attacker, networkId, '198.18.77.3', 'fd77::3', '198.18.77.4', 'fd77::4')
  await fabric.attach(own)
  const interfaceName = `kt${instance}`
  await fabric.attachHost({ networkId, mtu: 1450, interfaceName, addresses: ['198.18.77.1/29', 'fd77::1/64'] })
  await giveAddresses(victim, '198.18.77.2/29', 'fd77::2/64')
  await giveAddresses(attacker, '198.18.77.3/29', 'fd77::3/64', '198.18.77.4/29', 'fd77::4/64')
  const servers = [
    start(victim, process.execPath, server('victim')),
    start(attacker, process.execPath, server('attacker')),
  ]
  await Promise.all(servers.map(child => once(child.stdout!, 'data')))
  const passes = (namespace: string | null, address: string, from?: string) =>
    ask(namespace, address, from).catch(() => 'nothing')
  const fails = (namespace: string | null, address: string, from?: string) =>
    ask(namespace, address, from, 1500).then(
      () => false,
      () => true,
    )

  for (const [target, from] of [
    ['198.18.77.2', '198.18.77.3'],
    ['fd77::2', 'fd77::3'],
    ['198.18.77.2', '198.18.77.4'],
    ['fd77::2', 'fd77::4'],
  ] as const) {
    t.equal(await passes(attacker, target, from), 'victim', `from ${from}`)
  }

  // The attacker takes the victim's addresses and unused ones, announces them and answers for them.
  await run('ip', [
    'netns',
    'exec',
    attacker,
    'sysctl',
    '-q',
    'net.ipv4.conf.eth0.arp_notify=1',
    'net.ipv6.conf.eth0.ndisc_notify=1',
  ])
  for (const address of ['198.18.77.2/29', 'fd77::2/64', '198.18.77.5/29', 'fd77::5/64']) {
    await giveAddresses(attacker, address)
  }
  await ip(['-n', attacker, 'link', 'set', 'eth0', 'address', own.macAddress])
  for (let round = 0; round < 3; round++) {
    await ip(['neigh', 'flush', 'dev', interfaceName])
    t.equal(await passes(null, '198.18.77.2'), 'victim', 'the host still reaches the victim')
    t.equal(await passes(null, 'fd77::2'), 'victim', 'over IPv6 too')
  }
  await ip(['-n', attacker, 'address', 'delete', '198.18.77.2/29', 'dev', 'eth0'])
  t.strictSame(
    await Promise.all([
      fails(null, '198.18.77.5'),
      fails(null, 'fd77::5'),
      fails(attacker, '198.18.77.2', '198.18.77.5'),
    ]),
    [true, true, true],
    'unused addresses do not work',
  )

  await ip(['-n', attacker, 'link', 'set', 'eth0', 'address', 'fa:16:3e:00:00:99'])
  t.ok(await fails(attacker, '198.18.77.2', '198.18.77.3'), 'another MAC address does not work')
  await ip(['-n', attacker, 'link', 'set', 'eth0', 'address', own.macAddress])
  await fabric.attach({ ...own, addresses: ['198.18.77.3'] })
  t.equal(await passes(attacker, '198.18.77.2', '198.18.77.3'), 'victim')
  t.ok(await fails(attacker, '198.18.77.2', '198.18.77.4'), 'an address that is no longer allowed stops working')
})

t.test('interfaces', async t => {
  const { fabric, machine } = await createWorld(t)
  const one = await machine('one')
  const networkId = randomUUID()
  const desired = nic(one, networkId)
  const eth0 = async (namespace: string) => (await links(namespace)).find(link => link.ifname === 'eth0')

  await t.test('have the requested MAC address and MTU', async t => {
    await fabric.attach(desired)
    t.match(await eth0(one), { address: desired.macAddress, mtu: 1450 })
    t.strictSame(await fabric.attachedPorts(), [desired.portId])
  })

  await t.test('stay the same on a second attach, even if the machine renamed them', async t => {
    const { ifindex } = (await eth0(one))!
    await fabric.attach(desired)
    t.equal((await eth0(one))!.ifindex, ifindex)
    await ip(['-n', one, 'link', 'set', 'eth0', 'name', 'vip0'])
    await fabric.attach(desired)
    t.strictSame(
      (await links(one)).map(link => link.ifname),
      ['lo', 'vip0'],
    )
    await ip(['-n', one, 'link', 'set', 'vip0', 'name', 'eth0'])
  })

  await t.test('are completed when their creator died before the last step', async t => {
    const name = `p${desired.portId.replaceAll('-', '').slice(0, 11)}`
    const { ifindex } = (await eth0(one))!
    await ip(['-n', fabric.namespace, 'link', 'set', name, 'down', 'alias', ''])
    t.strictSame(await fabric.attachedPorts(), [name.slice(1)])
    await fabric.attach(desired)
    t.strictSame(await fabric.attachedPorts(), [desired.portId])
    t.equal((await eth0(one))!.ifindex, ifindex, 'the interface is the same')
  })

  await t.test('follow the port to another network, another MAC address and another machine', async t => {
    const two = await machine('two')
    for (const change of [{ networkId: randomUUID() }, { macAddress: 'fa:16:3e:00:00:99' }, { namespace: two }]) {
      Object.assign(desired, change)
      await fabric.attach(desired)
      t.equal((await eth0(desired.namespace))?.address, desired.macAddress)
      t.equal((await fabric.attachedPorts()).length, 1)
    }
    t.equal(await eth0(one), undefined)
    await fabric.detach(desired.portId)
    t.equal(await eth0(two), undefined)
    await fabric.detach(desired.portId)
    await fabric.detach(randomUUID())
    t.strictSame(await fabric.attachedPorts(), [])
  })

  await t.test('are created once by eight concurrent calls', async t => {
    const twin = new Fabric({ instance: fabric.namespace.replace('krater-', '') })
    const again = nic(one, randomUUID())
    await Promise.all(Array.from({ length: 8 }, (_, i) => (i % 2 ? fabric : twin).attach(again)))
    t.equal((await links(one)).length, 2)
    t.strictSame(await fabric.attachedPorts(), [again.portId])
    await fabric.detach(again.portId)
  })

  await t.test('are refused with a clear error when the machine or name is invalid', async t => {
    await t.rejects(fabric.attach(nic('no-such-machine', networkId)), /no-such-machine/)
    await t.rejects(fabric.attach({ ...nic(one, networkId), interfaceName: 'a\nlink delete dev lo' }), /Invalid line/)
  })

  await t.test('are attached and detached in bulk; the time is recorded', async t => {
    const interfaces = await Promise.all(
      Array.from({ length: 10 }, async (_, i) => nic(await machine(`cost${i}`), networkId)),
    )
    const started = performance.now()
    for (const each of interfaces) await fabric.attach(each)
    t.comment(`attach: ${((performance.now() - started) / interfaces.length).toFixed(1)} ms`)
    for (const each of interfaces) await fabric.detach(each.portId)
  })
})

t.test('the namespace', async t => {
  const { fabric } = await createWorld(t)
  const twin = new Fabric({ instance: fabric.namespace.replace('krater-', '') })

  await t.test('is created once by concurrent calls', async t => {
    await Promise.all(Array.from({ length: 8 }, (_, i) => (i % 2 ? fabric : twin).ensure()))
    const lo = (await links(fabric.namespace)).find(link => link.ifname === 'lo')
    t.ok(lo?.flags.includes('UP'))
  })

  await t.test('is recreated when its creator died between file and mount', async t => {
    await fabric.remove()
    closeSync(openSync(`/run/netns/${fabric.namespace}`, 'w'))
    await fabric.ensure()
    t.equal((await links(fabric.namespace)).length, 1)
  })

  await t.test('has bridges that send no packets themselves', async t => {
    const networkId = randomUUID()
    await Promise.all([fabric.ensureBridge(networkId, 1400), twin.ensureBridge(networkId, 1400)])
    const [bridge] = JSON.parse(
      await ip(['-n', fabric.namespace, '-json', '-details', 'link', 'show', 'type', 'bridge']),
    )
    t.match(bridge, { mtu: 1400, inet6_addr_gen_mode: 'none' })
    t.match(bridge.linkinfo.info_data, { forward_delay: 0, stp_state: 0, mcast_snooping: 0 })
  })

  await t.test('is removed; removing it twice is not an error', async t => {
    await fabric.remove()
    await fabric.remove()
    t.notOk(existsSync(`/run/netns/${fabric.namespace}`))
    t.strictSame(await fabric.attachedPorts(), [])
  })
})

t.test('the interface of a dead machine is removed even with unsent data in flight', async t => {
  const { fabric, machine, start } = await createWorld(t)
  const [one, two] = [await machine('one'), await machine('two')]
  const networkId = randomUUID()
  const interfaces = [nic(one, networkId, '198.18.77.2'), nic(two, networkId, '198.18.77.3')] as const
  await fabric.attach(interfaces[0])
  await fabric.attach(interfaces[1])
  await giveAddresses(one, '198.18.77.2/29')
  await giveAddresses(two, '198.18.77.3/29')
  const sink = start(one, process.execPath, [
    '-e',
    `require('net').createServer(s => s.pause()).listen(8080, () => console.log('ready'))`,
  ])
  await once(sink.stdout!, 'data')
  const sender = start(two, process.execPath, [
    '-e',
    `const s = require('net').connect(8080, '198.18.77.2'); s.on('connect', () => { s.write(Buffer.alloc(1 << 24)); console.log('ready') })`,
  ])
  await once(sender.stdout!, 'data')
  const ended = once(sender, 'exit')
  process.kill(sender.pid!, 'SIGKILL')
  await ended
  await ip(['netns', 'delete', two])
  await fabric.detach(interfaces[1].portId)
  t.strictSame(await fabric.attachedPorts(), [interfaces[0].portId])
  const again = await machine('two')
  await fabric.attach({ ...interfaces[1], namespace: again })
  t.equal((await links(again)).find(link => link.ifname === 'eth0')?.address, interfaces[1].macAddress)
})

t.test('a look from a place on a network tells silence from not having asked', async t => {
  const { fabric, machine } = await createWorld(t)
  const [networkId, subnetId] = [randomUUID(), randomUUID()]
  const one = await machine('one')
  await fabric.attach(nic(one, networkId, '198.18.77.2'))
  await giveAddresses(one, '198.18.77.2/29')
  const faults: { ensurePort?: Error; deletePort?: Error } = {}
  const failing = (fault: Error | undefined) => {
    if (fault !== undefined) throw fault
  }
  const driver = {
    ensurePort: async () => {
      failing(faults.ensurePort)
      return { ...nic('', networkId), id: randomUUID(), fixedIps: [{ subnetId, address: '198.18.77.5' }] }
    },
    network: async () => ({ mtu: 1450 }),
    deletePort: async () => failing(faults.deletePort),
  } as unknown as NetworkDriver
  const subnet = {
    ...{ id: subnetId, networkId, projectId: 'p', ipVersion: 4 as const, cidr: '198.18.77.0/29' },
    ...{ gatewayIp: null, hostRoutes: [], overlapsManagement: false },
  }
  const log = createLog('test', 'silent')
  const look = async (...addresses: string[]) => {
    const answers = await whoAnswers({ fabric, driver, log }, subnet, addresses)
    return answers && Object.fromEntries(answers)
  }
  const programs = mkdtempSync(join(tmpdir(), 'krater-programs-'))
  const { PATH } = process.env
  t.teardown(() => rmSync(programs, { recursive: true }))
  /** What `work` starts finds this program instead of the installed one. */
  const withProgram = async <T>(name: string, script: string, work: () => Promise<T>): Promise<T> => {
    writeFileSync(join(programs, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
    process.env.PATH = `${programs}:${PATH}`
    try {
      return await work()
    } finally {
      process.env.PATH = PATH
      rmSync(join(programs, name))
    }
  }

  t.equal(await look('198.18.77.2'), null, 'others are not on a network that leads nowhere')
  await ip(['-n', fabric.namespace, 'link', 'add', uplinkFabricEnd(networkId), 'type', 'bridge'])
  const seen = { '198.18.77.2': 'answers', '198.18.77.3': 'silent' }
  t.strictSame(await look('198.18.77.2', '198.18.77.3'), seen)
  faults.deletePort = new Error('the database is away')
  t.strictSame(await look('198.18.77.2', '198.18.77.3'), seen, 'what was seen counts, whatever happens then')
  delete faults.deletePort

  const unknown = { '198.18.77.2': 'unknown' }
  t.strictSame(await withProgram('ping', 'exit 2', () => look('198.18.77.2')), unknown)
  const lost = 'echo nsenter: cannot open: No such file >&2; exit 1'
  t.strictSame(await withProgram('nsenter', lost, () => look('198.18.77.2')), unknown, 'ping was never reached')
  faults.ensurePort = new Error('no address is left')
  await t.rejects(look('198.18.77.2'), faults.ensurePort)
  await t.rejects(
    withProgram('unshare', 'exit 1', () => look('198.18.77.2')),
    /unshare ended/,
  )
  await t.rejects(
    withProgram('unshare', 'exec sleep 60', () => look('198.18.77.2')),
    /no network namespace in time/,
  )
})
