import { spawn } from 'node:child_process'
import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { whoHas } from '../../../controller/cli/commands/doctor/networks/frame-probe.js'
import {
  conflictFindings,
  deliveryFinding,
} from '../../../controller/cli/commands/doctor/networks/physical-networks.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { ip, linkNamed } from '../../../controller/network/local/ip-command.js'
import { bridgeOf } from '../../../controller/network/local/names.js'
import type { ProviderNetwork } from '../../../controller/network/local/uplinks/plan.js'
import { detailedLinks, Uplinks } from '../../../controller/network/local/uplinks/uplinks.js'
import { createLan, hostState, inNamespace, type Lan, outputIn } from '../../support/worlds/lan.js'

const FRAMES = join(import.meta.dirname, '../../support/worlds/frames.pl')
const PHYSICAL = (name: string) => ({ lan: { interface: name } })

/**
 * Programs before `ip`, `nft` and `tc` that let only so many changes pass, as if the process that makes them died then.
 * This process finds them for as long as it lives.
 */
const tools = (() => {
  const directory = mkdtempSync(join(tmpdir(), 'krater-tools-'))
  const [made, most] = [join(directory, 'made'), join(directory, 'most')]
  const after = (changes: number) => {
    writeFileSync(made, '')
    writeFileSync(most, `${changes}\n`)
  }
  for (const name of ['ip', 'nft', 'tc']) {
    const real = (process.env.PATH ?? '')
      .split(delimiter)
      .map(folder => join(folder, name))
      .find(existsSync)
    const script = `#!/bin/sh
case " $* " in *" show "*|*" list "*|*" exec "*) exec ${real} "$@";; esac
printf . >> ${made}; read -r changes < ${made}; read -r limit < ${most}
[ "\${#changes}" -le "$limit" ] && exec ${real} "$@"
echo "$0: it died" >&2; exit 1
`
    writeFileSync(join(directory, name), script, { mode: 0o755 })
  }
  after(100_000)
  process.env.PATH = `${directory}${delimiter}${process.env.PATH}`
  t.teardown(() => rmSync(directory, { recursive: true }))
  return { after, changes: () => readFileSync(made, 'utf8').length }
})()

async function createWorld(t: Test) {
  const instance = randomBytes(3).toString('hex')
  const fabric = new Fabric({ instance })
  const lan = await createLan(t)
  const namespaces: string[] = []
  t.teardown(async () => {
    await new Uplinks(fabric).remove()
    await fabric.remove()
    for (const namespace of namespaces) await ip(['netns', 'delete', namespace])
  })
  const network = { id: randomUUID(), mtu: 1500, physicalNetwork: 'lan', segmentationId: null }
  const macs: string[] = []
  return {
    fabric,
    lan,
    network,
    /** The network as the tables have it: with the MAC addresses of all ports. */
    networks: async (): Promise<ProviderNetwork[]> => [{ ...network, macAddresses: [...macs] }],
    /** A machine in the fabric, on the network, with addresses of the LAN. */
    machine: async (host: number) => {
      const namespace = `test-${instance}-${host}`
      await ip(['netns', 'add', namespace])
      namespaces.push(namespace)
      const macAddress = `fa:16:3e:${randomBytes(3).toString('hex').match(/../g)!.join(':')}`
      macs.push(macAddress)
      const addresses = [lan.address.v4(host), lan.address.v6(host)]
      const nic = { networkId: network.id, mtu: 1500, portId: randomUUID(), macAddress, addresses, namespace }
      await fabric.attach({ ...nic, interfaceName: 'eth0' })
      await ip(['-n', namespace, 'address', 'add', `${addresses[0]}/24`, 'dev', 'eth0'])
      await ip(['-n', namespace, 'address', 'add', `${addresses[1]}/64`, 'dev', 'eth0', 'nodad'])
      await ip(['-n', namespace, 'link', 'set', 'dev', 'eth0', 'up'])
      await ip(['-n', namespace, 'link', 'set', 'dev', 'lo', 'up'])
      return { namespace, macAddress, portId: nic.portId, host }
    },
  }
}

/** Pings, with large packets too; the first packet may be lost while a port joins its bridge. @returns what stays silent */
async function unanswered(from: string | null, addresses: readonly string[]): Promise<string[]> {
  const pings = addresses.flatMap(address => [64, 4000].map(size => [address, size] as const))
  const missing = await Promise.all(
    pings.map(async ([address, size]) => {
      const text = await outputIn(from, 'ping', '-q', '-c', '2', '-i', '0.2', '-W', '2', '-s', String(size), address)
      return /, [12] received/.test(text) ? [] : [`${from}: ${address} (${size})`]
    }),
  )
  return missing.flat()
}

/** Sends frames from one interface. @returns how often each text came in at another; `LAST` must come in */
async function seen(
  { at, from }: { at: [string | null, string]; from: [string | null, string] },
  frames: readonly string[],
  texts: readonly string[],
): Promise<number[]> {
  const [program, args] = inNamespace(at[0], 'perl', FRAMES, 'count', at[1], '4', ...texts)
  const counter = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines = createInterface({ input: counter.stdout })[Symbol.asyncIterator]()
  await lines.next()
  await outputIn(from[0], 'perl', FRAMES, 'send', from[1], ...frames)
  const { value } = await lines.next()
  return String(value).split(' ').map(Number)
}

const BROADCAST = 'ff:ff:ff:ff:ff:ff'
/** An Ethernet frame of an experimental type with a text, in hexadecimal. */
const frame = (to: string, from: string, text: string, tag = '') =>
  [to, from, tag, '88b5', Buffer.from(text.padEnd(60, '.')).toString('hex')].join('').replaceAll(':', '')

/** A ping of the host by a machine on the LAN, several times a second until it is told to stop. */
function probeHost(t: Test, lan: Lan, machine: string) {
  const [program, args] = inNamespace(machine, 'ping', '-i', '0.05', '-W', '1', lan.address.v4(1))
  const ping = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => ping.kill('SIGKILL'))
  let text = ''
  ping.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
  return async () => {
    const closed = once(ping, 'close')
    ping.kill('SIGINT')
    await closed
    return text.split('\n').at(-3) ?? ''
  }
}

t.test('machines, the host and the LAN reach each other, and the host stays as it was', async t => {
  const { fabric, lan, networks, network, machine } = await createWorld(t)
  const [one, two] = [await lan.machine(11), await lan.machine(12)]
  const before = await hostState(lan.interfaceName, fabric.instance)
  const uplinks = new Uplinks(fabric)
  const physical = PHYSICAL(lan.interfaceName)
  const stopProbe = probeHost(t, lan, one)
  const early = await machine(100)
  t.strictSame(await uplinks.ensure(networks, physical), [])
  const late = await machine(101)
  const everybody = [null, one, two, early.namespace, late.namespace]
  const all = [1, 11, 12, 100, 101].flatMap(host => [lan.address.v4(host), lan.address.v6(host)])
  const allReach = async () => (await Promise.all(everybody.map(from => unanswered(from, all)))).flat()
  const repaired = async () => {
    await uplinks.ensure(networks, physical)
    // Others learn a new MAC address of the host in time.
    for (const namespace of [one, two, early.namespace, late.namespace]) {
      await ip(['-n', namespace, 'neigh', 'flush', 'all'])
    }
    return unanswered(two, all)
  }
  const hostEnd = `kr${fabric.instance}-${network.id.slice(0, 6)}`
  const table = hostEnd.replace('-', '_')

  await t.test('all pairs, over IPv4 and IPv6, with large packets', async t => {
    t.strictSame(await allReach(), [])
  })

  await t.test('the doctor finds addresses in use twice, and a network that delivers to no VIP', async t => {
    const addresses = [
      lan.address.v4(100),
      lan.address.v6(101),
      lan.address.v4(12),
      lan.address.v6(12),
      lan.address.v4(99),
    ]
    const hostLink = async () => (await detailedLinks(null, 'dev', lan.interfaceName))[0]!
    const { address: from } = await hostLink()
    const answers = await whoHas(lan.interfaceName, { addresses, from })
    t.same(new Set(answers.map(({ address }) => address)), new Set(addresses.slice(0, 4)))
    const conflicts = conflictFindings(answers, [early.macAddress, late.macAddress]).map(({ text }) => text)
    t.equal(conflicts.length, 2, 'only those of others')
    t.ok(conflicts.every(text => text.startsWith(lan.address.v4(12)) || text.startsWith(lan.address.v6(12))))
    t.match(await deliveryFinding(await hostLink()), [{ state: 'ok' }])
    const filter = `table bridge port { chain out { type filter hook forward priority 0; oifname "host" ether daddr & 01:00:00:00:00:00 == 0 ether daddr != ${from} drop; }\n}`
    const nft = (...words: string[]) => outputIn(lan.switchNamespace, 'nft', ...words)
    await nft(filter)
    t.match(await deliveryFinding(await hostLink()), [
      { state: 'fault', text: /does not deliver/, remedy: /promiscuous/ },
    ])
    await nft('delete', 'table', 'bridge', 'port')
  })

  await t.test('bulk transfers need no repeated segment and have no wrong checksum', async t => {
    const size = 30_000_000
    const server = `const bytes = Buffer.alloc(${size}); require('net').createServer(s => s.on('error', () => {}).end(bytes)).listen(5001, '::', () => console.log('ready'))`
    // One after the other; a line for each.
    const client = `const next = ([host, ...others]) => {
        let n = 0
        const ended = () => { console.log(host, n); next(others) }
        if (host) require('net').connect(5001, host).on('data', d => (n += d.length)).on('end', ended)
      }
      next(process.argv.slice(1))`
    const places = [null, one, early.namespace]
    const addressesAt = (at: string | null) => all.slice(2 * everybody.indexOf(at)).slice(0, 2)
    for (const at of places) {
      const [program, args] = inNamespace(at, process.execPath, '-e', server)
      const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
      t.teardown(() => child.kill('SIGKILL'))
      await once(child.stdout, 'data')
    }
    for (const from of everybody) {
      const addresses = places.filter(at => at !== from).flatMap(addressesAt)
      const came = (await outputIn(from, process.execPath, '-e', client, ...addresses)).trim().split('\n')
      const whole = addresses.map(address => `${address} ${size}`)
      t.same(came, whole, String(from))
    }
    for (const at of places) {
      const wrong = await outputIn(at, 'nstat', '-asz', 'TcpInCsumErrors', 'IpExtInCsumErrors')
      t.notMatch(wrong, /Errors\s+[1-9]/)
    }
  })

  await t.test('a frame arrives once, wherever it comes from; nothing circulates', async t => {
    const hostMac = (await linkNamed(null, lan.interfaceName))!.address
    const lanMac = '02:00:00:00:00:0b'
    const places: [string, [string | null, string], string][] = [
      ['a machine of the fabric', [early.namespace, 'eth0'], early.macAddress],
      ['the host', [null, lan.interfaceName], hostMac],
      ['the LAN', [one, 'eth0'], lanMac],
    ]
    // A port of the network sends ARP and IP only, so its broadcast is an ARP question for an address that nobody has.
    const own = early.macAddress.replaceAll(':', '')
    const bytes = (host: number) => Buffer.from(lan.address.v4(host).split('.').map(Number)).toString('hex')
    const question = (text: string) =>
      `ffffffffffff${own}08060001080006040001${own}${bytes(100)}000000000000${bytes(99)}${Buffer.from(text).toString('hex')}`
    for (const [name, from, mac] of places) {
      const asks = name.startsWith('a machine')
      const broadcast = (text: string) => (asks ? question(text) : frame(BROADCAST, mac, text))
      for (const at of [
        [late.namespace, 'eth0'],
        [null, lan.interfaceName],
        [two, 'eth0'],
      ] as [string | null, string][]) {
        if (at[0] === from[0]) continue
        t.strictSame(
          await seen({ at, from }, [broadcast('ONCE'), broadcast('LAST')], ['ONCE']),
          [1],
          `${name} to ${at}`,
        )
      }
      if (asks) continue
      const unicast = [frame(late.macAddress, mac, 'ONCE'), frame(late.macAddress, mac, 'LAST')]
      t.strictSame(await seen({ at: [late.namespace, 'eth0'], from }, unicast, ['ONCE']), [1], `${name}, unicast`)
    }
  })

  await t.test('only frames for its ports come in: no foreign, tagged or forged ones', async t => {
    const foreign = 'fa:16:3e:ff:ff:fe'
    const tag = '8100000a'
    const frames = [
      frame(foreign, '02:00:00:00:00:0b', 'FOREIGN'),
      frame(BROADCAST, '02:00:00:00:00:0b', 'TAGGED', tag),
      frame(late.macAddress, '02:00:00:00:00:0b', 'TAGGED', tag),
      frame(BROADCAST, late.macAddress, 'FORGED'),
      frame(late.macAddress, early.macAddress, 'FORGED'),
      frame(BROADCAST, '02:00:00:00:00:0b', 'LAST'),
    ]
    const at: [string, string] = [late.namespace, 'eth0']
    const counted = await seen({ at, from: [one, 'eth0'] }, frames, ['FOREIGN', 'TAGGED', 'FORGED', 'LAST'])
    t.strictSame(counted, [0, 0, 0, 1])
    t.strictSame(await unanswered(null, all), [], 'a forged sender takes nothing over')
    const out = [
      frame(BROADCAST, late.macAddress, 'TAGGED', tag),
      frame(BROADCAST, foreign, 'FORGED'),
      frame(BROADCAST, late.macAddress, 'STRANGE'),
    ]
    const lanSees = seen({ at: [one, 'eth0'], from: [late.namespace, 'eth0'] }, out, ['TAGGED', 'FORGED', 'STRANGE'])
    t.strictSame(await lanSees, [0, 0, 0], 'nor does a port send others to the LAN')
  })

  await t.test('a flood from the LAN ends before it reaches the network', async t => {
    const flood = (count: number, of: (number: number) => string) =>
      outputIn(one, 'perl', FRAMES, 'send', 'eth0', ...Array.from({ length: count }, (_, number) => of(number)))
    const bare = (to: string, number: number) =>
      `${to}020f0000${number.toString(16).padStart(4, '0')}88b500000000`.replaceAll(':', '')
    // After the forged frames, the switch knows again where the machines are.
    for (const { namespace } of [early, late]) t.strictSame(await unanswered(namespace, [lan.address.v4(11)]), [])
    await flood(6000, number => bare(late.macAddress, number))
    const bridge = bridgeOf(network.id)
    const known = await outputIn(fabric.namespace, 'bridge', 'fdb', 'show', 'br', bridge, 'dynamic')
    const forged = known.split('\n').filter(line => line.startsWith('02:0f:'))
    t.ok(forged.length > 1000 && forged.length <= 4096, `the bridge knows ${forged.length} of 6000 forged senders`)
    const received = async () =>
      Number(await outputIn(late.namespace, 'cat', '/sys/class/net/eth0/statistics/rx_packets'))
    const before = await received()
    await flood(12_000, () => bare(BROADCAST, 1))
    const passed = (await received()) - before
    t.ok(passed >= 1000 && passed < 8000, `${passed} of 12000 broadcast frames reach a machine`)
    t.strictSame(await unanswered(two, all), [], 'who spoke before is answered')
    await outputIn(null, 'nft', 'flush', 'set', 'netdev', table, 'senders')
  })

  await t.test('whatever is removed or changed is repaired', async t => {
    const port = `u${network.id.replaceAll('-', '').slice(0, 11)}`
    const breaks: [string, () => Promise<unknown>][] = [
      ['nothing', async () => undefined],
      ['the table', () => outputIn(null, 'nft', 'delete', 'table', 'netdev', table)],
      ['a rule', () => outputIn(null, 'nft', 'flush', 'chain', 'netdev', table, 'from_interface')],
      ['a limit', () => outputIn(null, 'nft', 'flush', 'chain', 'netdev', table, 'to_all')],
      ['an admitted address', () => outputIn(null, 'nft', 'flush', 'set', 'netdev', table, 'ours')],
      ['the filters', () => outputIn(null, 'tc', 'qdisc', 'delete', 'dev', hostEnd, 'clsact')],
      ['promiscuity', () => ip(['link', 'set', 'dev', lan.interfaceName, 'promisc', 'off'])],
      ['the host end', () => ip(['link', 'delete', 'dev', hostEnd])],
      ['the host end is down', () => ip(['link', 'set', 'dev', hostEnd, 'down'])],
      ['the bridge', () => ip(['-n', fabric.namespace, 'link', 'set', 'dev', port, 'nomaster'])],
    ]
    for (const [what, work] of breaks) {
      await work()
      t.strictSame(await repaired(), [], what)
    }
    const changes = async () => {
      tools.after(1000)
      await uplinks.ensure(networks, physical)
      return tools.changes()
    }
    t.ok((await changes()) < 6, 'a look at what is right changes next to nothing')
  })

  const lost = await stopProbe()
  t.match(lost, / 0% packet loss/, `the host answers all along: ${lost}`)

  await t.test('the interface changes its MAC address, goes down, vanishes and comes back', async t => {
    await ip(['link', 'set', 'dev', lan.interfaceName, 'address', '02:00:00:00:00:77'])
    t.strictSame(await repaired(), [], 'another MAC address')
    await ip(['link', 'set', 'dev', lan.interfaceName, 'down'])
    const [down] = await uplinks.ensure(networks, physical)
    t.match(down, { physicalNetwork: 'lan', reason: /is down/, remedy: /^ip link set dev/ })
    await ip(['link', 'set', 'dev', lan.interfaceName, 'up'])
    await ip(['address', 'replace', `${lan.address.v6(1)}/64`, 'dev', lan.interfaceName, 'nodad'])
    t.strictSame(await repaired(), [], 'up again')
    await ip(['link', 'delete', 'dev', lan.interfaceName])
    t.match((await uplinks.ensure(networks, physical))[0]?.reason, /has no interface lan/)
    await lan.plugHost()
    t.strictSame(await repaired(), [], 'back again')
    await ip(['link', 'set', 'dev', lan.interfaceName, 'down'])
    await ip(['link', 'set', 'dev', lan.interfaceName, 'name', 'renamed0'])
    await ip(['link', 'set', 'dev', 'renamed0', 'up'])
    await ip(['address', 'replace', `${lan.address.v6(1)}/64`, 'dev', 'renamed0', 'nodad'])
    t.match((await uplinks.ensure(networks, physical))[0]?.reason, /has no interface lan/)
    t.strictSame(await uplinks.ensure(networks, PHYSICAL('renamed0')), [], 'under its new name')
    t.strictSame(await unanswered(two, all), [])
    await ip(['link', 'set', 'dev', 'renamed0', 'down'])
    await ip(['link', 'set', 'dev', 'renamed0', 'name', lan.interfaceName])
    await ip(['link', 'set', 'dev', lan.interfaceName, 'up'])
    await ip(['address', 'replace', `${lan.address.v6(1)}/64`, 'dev', lan.interfaceName, 'nodad'])
    t.strictSame(await repaired(), [], 'and back')
  })

  await t.test('its maker dies after any change: the next completes it, or removes all', async t => {
    await uplinks.remove()
    const fresh = await hostState(lan.interfaceName, fabric.instance)
    tools.after(1000)
    await new Uplinks(fabric).ensure(networks, physical)
    const steps = tools.changes()
    t.ok(steps >= 8, `${steps} changes`)
    await uplinks.remove()
    const probe = probeHost(t, lan, one)
    for (let step = 0; step < steps; step++) {
      tools.after(step)
      await new Uplinks(fabric).ensure(networks, physical).catch(() => undefined)
      tools.after(100_000)
      if (step % 2 === 0) {
        t.strictSame(await new Uplinks(fabric).ensure(networks, physical), [])
        t.strictSame(await unanswered(two, [lan.address.v4(100), lan.address.v6(101)]), [], `completed after ${step}`)
      }
      tools.after(step % 4)
      await new Uplinks(fabric).remove().catch(() => undefined)
      tools.after(100_000)
      await new Uplinks(fabric).remove()
      t.strictSame(await hostState(lan.interfaceName, fabric.instance), fresh, `removed after ${step}`)
    }
    const end = await probe()
    t.match(end, / 0% packet loss/, `the host answers all along: ${end}`)
  })

  await uplinks.ensure(networks, physical)
  t.strictSame(await uplinks.ensure(async () => [], physical), [], 'a network that is gone')
  const numbers = /^\d+: |link\/ether \S+|@if\d+|valid_lft \S+|preferred_lft \S+/g
  const plain = (lines: readonly string[]) => lines.map(line => line.replaceAll(numbers, ''))
  t.strictSame(plain(await hostState(lan.interfaceName, fabric.instance)), plain(before), 'all is as it was')
  t.notOk((await linkNamed(null, lan.interfaceName))!.flags.includes('PROMISC'))
  await uplinks.ensure(networks, physical)
  await outputIn(null, 'nft', 'delete', 'table', 'netdev', table)
  await uplinks.ensure(networks, physical)
  await uplinks.remove()
  t.notOk(
    (await linkNamed(null, lan.interfaceName))!.flags.includes('PROMISC'),
    'even if the note of it was lost, as when the firewall restarts',
  )
  const impossible = { ...(await networks())[0]!, id: randomUUID(), physicalNetwork: 'other', segmentationId: 7 }
  const both = { ...physical, other: { interface: lan.interfaceName } }
  const vlan = await uplinks.ensure(async () => [impossible, ...(await networks())], both)
  // Kernels of other machines have VLAN devices.
  if (vlan.length > 0)
    t.match(vlan, [{ networkId: impossible.id, reason: /vlan/i }], 'one failure does not hold up others')
  t.strictSame(await unanswered(two, [lan.address.v4(100)]), [])
  await uplinks.remove()
  await ip(['link', 'set', 'dev', lan.interfaceName, 'promisc', 'on'])
  await uplinks.ensure(networks, physical)
  await uplinks.remove()
  t.ok(
    (await linkNamed(null, lan.interfaceName))!.flags.includes('PROMISC'),
    'an interface stays promiscuous if it was',
  )
})

t.test('a bridge of the host is joined', async t => {
  const { fabric, lan, networks, machine } = await createWorld(t)
  const one = await lan.machine(11)
  const bridge = `b${fabric.instance}`
  const hostMac = (await linkNamed(null, lan.interfaceName))!.address
  await ip(['link', 'add', 'name', bridge, 'address', hostMac, 'type', 'bridge', 'forward_delay', '0'])
  t.teardown(() => ip(['link', 'delete', 'dev', bridge]))
  await ip(['address', 'flush', 'dev', lan.interfaceName])
  await ip(['link', 'set', 'dev', lan.interfaceName, 'master', bridge])
  await ip(['link', 'set', 'dev', bridge, 'up'])
  await ip(['address', 'add', `${lan.address.v4(1)}/24`, 'dev', bridge])
  await ip(['address', 'add', `${lan.address.v6(1)}/64`, 'dev', bridge, 'nodad'])
  const before = await hostState(lan.interfaceName, fabric.instance)
  const uplinks = new Uplinks(fabric)
  const [fault] = await uplinks.ensure(networks, PHYSICAL(lan.interfaceName))
  t.match(fault, {
    reason: `${lan.interfaceName} is a part of ${bridge}`,
    remedy: `name ${bridge} in network.physical_networks instead of ${lan.interfaceName}`,
  })
  t.strictSame(await uplinks.ensure(networks, PHYSICAL(bridge)), [])
  const { namespace } = await machine(100)
  const all = [1, 11, 100].flatMap(host => [lan.address.v4(host), lan.address.v6(host)])
  for (const from of [null, one, namespace]) t.strictSame(await unanswered(from, all), [])
  t.equal((await linkNamed(null, bridge))!.address, hostMac, 'its MAC address stays')
  await uplinks.remove()
  t.strictSame(await hostState(lan.interfaceName, fabric.instance), before)
  t.match(await uplinks.ensure(networks, {}), [{ reason: 'network.physical_networks does not name lan' }])
})
