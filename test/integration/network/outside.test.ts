import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { blockingChain, parseRuleset, passCommands } from '../../../controller/cli/commands/doctor/networks/firewall.js'
import { parseAddress } from '../../../controller/network/addresses.js'
import { forwards } from '../../../controller/network/local/host/forwarding.js'
import { guardHostLeg, unguardHostLeg } from '../../../controller/network/local/host/host-guard.js'
import { closeOutside, guardOutside } from '../../../controller/network/local/host/outside.js'
import { ip } from '../../../controller/network/local/ip-command.js'
import { eventually } from '../../support/eventually.js'
import { createWorld, giveAddresses, nic } from '../../support/worlds/fabric-world.js'
import { inhabit } from '../../support/worlds/inhabitant.js'
import { createLan, outputIn } from '../../support/worlds/lan.js'

const FRAMES = join(import.meta.dirname, '../../support/worlds/frames.pl')

const soon = { waitMs: 1_000 }

/** A machine of a LAN announces a prefix, as a router does that is not a way out. */
async function announcePrefix(machine: string, prefix: string): Promise<void> {
  const bytes = (text: string) => Buffer.from(parseAddress(text)!.value.toString(16).padStart(32, '0'), 'hex')
  const [source, group] = [bytes('fe80::b'), bytes('ff02::1')]
  const lifetimes = Buffer.from('00000e1000000e1000000000', 'hex')
  const option = Buffer.concat([Buffer.from([3, 4, 64, 0xc0]), lifetimes, bytes(prefix)])
  const message = Buffer.concat([Buffer.from([134, 0, 0, 0, 64, 0, 0, 0, ...Buffer.alloc(8)]), option])
  const pseudo = Buffer.concat([source, group, Buffer.from([0, 0, 0, message.length, 0, 0, 0, 58]), message])
  let sum = 0
  for (let at = 0; at < pseudo.length; at += 2) sum += pseudo.readUInt16BE(at)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16)
  message.writeUInt16BE(~sum & 0xffff, 2)
  const header = Buffer.from([0x60, 0, 0, 0, 0, message.length, 58, 255])
  const frame = Buffer.concat([Buffer.from('33330000000102000000000b86dd', 'hex'), header, source, group, message])
  await outputIn(machine, 'perl', FRAMES, 'send', 'eth0', frame.toString('hex'))
}

/** Forwarding is a switch of the whole machine, so the test has a network namespace to itself. */
const isApart = process.argv.includes('apart')
if (!isApart) {
  const enter = ['--net', 'sh', '-ec', 'ip link set lo up; exec "$@"', 'sh']
  void t.spawn(
    'unshare',
    [...enter, process.execPath, ...process.argv.slice(1), 'apart'],
    'in a network namespace of its own',
  )
}

async function readFirewalls(t: Test): Promise<void> {
  const { machine, run, feed } = await createWorld(t)
  const namespace = await machine('firewall')
  const known = { interfaceName: 'krabcd-pub', port: 5555 }
  const chain = (hook: string, policy: string, rules = '') =>
    `{ chain ${hook === 'input' ? 'INPUT' : 'FORWARD'} { type filter hook ${hook} priority 0; policy ${policy}; ${rules.replaceAll(';', '\n')}\n }\n }`
  const read = async (text: string, ...more: string[][]) => {
    await feed(namespace, 'nft', ['-f', '-'], `flush ruleset\n${text}\n`)
    for (const words of more) await run(namespace, ...words)
    const ruleset = parseRuleset(await run(namespace, 'nft', '-j', 'list', 'ruleset'))
    return (['forward', 'input'] as const).map(hook => blockingChain(ruleset, hook, known))
  }
  const docker = `table ip filter ${chain('forward', 'drop')}`
  t.match(await read(docker), [{ chain: 'ip filter FORWARD', firewall: 'iptables' }, null])
  const accepts = ['iifname', 'oifname'].map(name => [
    'nft',
    'insert',
    'rule',
    'ip',
    'filter',
    'FORWARD',
    name,
    'krabcd-pub',
    'accept',
  ])
  t.same(await read(docker, ...accepts), [null, null], 'after what the doctor advises')
  const ufw = `table ip filter { chain ufw-user-input { }\n }\ntable ip filter ${chain('input', 'drop', 'jump ufw-user-input;')}`
  t.match(await read(ufw), [null, { chain: 'ip filter INPUT', firewall: 'ufw' }])
  t.same(await read(ufw, ['nft', 'add', 'rule', 'ip', 'filter', 'ufw-user-input', 'udp', 'dport', '5555', 'accept']), [
    null,
    null,
  ])
  const last = 'ct state established accept; iifname lo accept; reject with icmpx admin-prohibited;'
  const firewalld = `table inet firewalld ${chain('forward', 'accept', last)}`
  t.match(await read(firewalld), [{ chain: 'inet firewalld FORWARD', firewall: 'firewalld' }, null])
  const own = `table inet mine ${chain('forward', 'drop', 'ct state established accept;')}`
  const [found] = await read(own)
  t.match(found, { chain: 'inet mine FORWARD', firewall: 'nftables' })
  const commands = passCommands(found!, 'forward', 'krabcd-pub').map(line => line.split(' '))
  t.same(await read(own, ...commands), [null, null], 'after what the doctor advises')
  t.same(await read(`table ip filter ${chain('forward', 'accept', 'tcp dport 25 drop;')}`), [null, null])
}

async function reachOutside(t: Test): Promise<void> {
  const { fabric, machine, start, instance } = await createWorld(t)
  const lan = await createLan(t)
  const interfaceName = `kt${instance}-pub`
  const addresses = ['198.18.79.1', 'fd79::1']
  const outside = { interfaceName, cidrs: ['198.18.79.0/24', 'fd79::/64'], denied: [lan.address.v4(12)] }
  t.teardown(() => Promise.all([closeOutside(interfaceName), unguardHostLeg(interfaceName)]))
  // Turning forwarding off lets a host accept redirects, whatever it did before.
  const redirects = '/proc/sys/net/ipv4/conf/all/accept_redirects'
  writeFileSync(redirects, '0')
  const before = [await forwards('ipv4'), await forwards('ipv6')]
  t.same(before, [false, false])
  const conf = () =>
    [
      'ipv4/conf/all',
      'ipv4/conf/default',
      'ipv6/conf/default',
      ...['ipv4', 'ipv6'].map(of => `${of}/conf/${lan.interfaceName}`),
    ]
      .flatMap(folder => ['forwarding', 'accept_redirects', 'accept_ra'].map(name => `/proc/sys/net/${folder}/${name}`))
      .flatMap(path => (existsSync(path) ? [`${path} ${readFileSync(path, 'utf8').trim()}`] : []))
  const settings = conf()
  await guardOutside({ ...outside, enabled: false })
  await guardHostLeg(interfaceName, { addresses, open: [{ protocol: 'tcp', port: 8081 }], isolated: false })
  const networkId = randomUUID()
  const legs = addresses.map((address, at) => `${address}/${at === 0 ? 24 : 64}`)
  await fabric.attachHost({ networkId, mtu: 1450, interfaceName, addresses: legs })
  const vip = await machine('vip')
  await fabric.attach(nic(vip, networkId, '198.18.79.9', 'fd79::9'))
  await giveAddresses(vip, '198.18.79.9/24', 'fd79::9/64')
  await ip(['-n', vip, 'route', 'add', 'default', 'via', '198.18.79.1'])
  await ip(['-n', vip, '-6', 'route', 'add', 'default', 'via', 'fd79::1'])

  // A container behind a bridge of the host, as Docker and Podman have it.
  const container = await machine('container')
  const bridge = `kc${instance}`
  await ip(['link', 'add', 'name', bridge, 'type', 'bridge', 'forward_delay', '0'])
  t.teardown(async () => {
    await ip(['link', 'delete', 'dev', `kv${instance}`])
    await ip(['link', 'delete', 'dev', bridge])
  })
  await ip(['link', 'add', 'name', `kv${instance}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', container])
  await ip(['link', 'set', 'dev', `kv${instance}`, 'master', bridge, 'up'])
  await ip(['address', 'add', '198.18.88.1/24', 'dev', bridge])
  await ip(['address', 'add', 'fd88::1/64', 'dev', bridge, 'nodad'])
  await ip(['link', 'set', 'dev', bridge, 'up'])
  await giveAddresses(container, '198.18.88.2/24', 'fd88::2/64', '169.254.169.254/32')
  await ip(['-n', container, 'route', 'add', 'default', 'via', '198.18.88.1'])
  await ip(['-n', container, '-6', 'route', 'add', 'default', 'via', 'fd88::1'])
  await ip(['route', 'add', '169.254.169.254/32', 'dev', bridge])
  const [elsewhere, denied] = [await lan.machine(11), await lan.machine(12)]

  const settle = (name: string, namespace: string | null) =>
    inhabit(name, (program, args) => start(namespace, program, args), [8080, 8081])
  const [inside, box, far] = [await settle('vip', vip), await settle('box', container), await settle('far', elsewhere)]
  await settle('denied', denied)
  await settle('host', null)
  const ask = (address: string, port = 8080) => inside.ask(address, { ...soon, port })
  const reached = () =>
    Promise.all(['198.18.88.2', 'fd88::2', lan.address.v4(11), lan.address.v6(11)].map(to => ask(to)))

  t.same(await reached(), [null, null, null, null], 'by default they reach nothing')
  await guardOutside({ ...outside, enabled: true })
  t.ok((await forwards('ipv4')) && (await forwards('ipv6')), 'the host forwards')
  await announcePrefix(elsewhere, 'fd78::')
  await eventually('the host still heeds routers', async () =>
    (await outputIn(null, 'ip', '-6', 'address', 'show', 'dev', lan.interfaceName)).includes('inet6 fd78::'),
  )
  const byHost = ['box 198.18.88.1', 'box fd88::1', `far ${lan.address.v4(1)}`, `far ${lan.address.v6(1)}`]
  t.same(await reached(), byHost, 'by the host’s addresses, over IPv4 and IPv6')
  await guardOutside({ ...outside, enabled: true })
  t.same(await reached(), byHost, 'a second time too')
  t.same(
    await Promise.all([ask(lan.address.v4(12)), ask('169.254.169.254')]),
    [null, null],
    'but no denied address and no metadata service',
  )
  t.same(
    await Promise.all([...addresses, '198.18.88.1', lan.address.v4(1), lan.address.v6(1)].map(address => ask(address))),
    [null, null, null, null, null],
    'nor the host itself',
  )
  t.same(
    await Promise.all([...addresses, '198.18.88.1'].map(address => ask(address, 8081))),
    ['host 198.18.79.9', 'host fd79::9', null],
    'except the open port, at the leg’s own addresses',
  )
  await ip(['-n', elsewhere, 'route', 'add', '198.18.79.0/24', 'via', lan.address.v4(1)])
  await ip(['-n', elsewhere, '-6', 'route', 'add', 'fd79::/64', 'via', lan.address.v6(1)])
  t.same(
    [await far.ask('198.18.79.9'), await far.ask('fd79::9'), await box.ask('198.18.79.9')],
    [`vip ${lan.address.v4(11)}`, `vip ${lan.address.v6(11)}`, 'vip 198.18.88.2'],
    'who has a route reaches a VIP, which sees the client’s own address',
  )
  await ip(['-n', elsewhere, 'route', 'add', '198.18.88.0/24', 'via', lan.address.v4(1)])
  t.equal(await far.ask('198.18.88.2', soon), null, 'but who had no way through this host still has none')

  await t.test('forwarding goes off with the last installation that needs it', async t => {
    const second = `kt${instance}2-pub`
    t.teardown(() => closeOutside(second))
    await guardOutside({ ...outside, interfaceName: second, enabled: true })
    await guardOutside({ ...outside, enabled: false })
    t.same(await reached(), [null, null, null, null], 'and it ends when the operator says so')
    t.same([await forwards('ipv4'), await forwards('ipv6')], [true, true], 'the second one still needs it')
    await guardOutside({ ...outside, enabled: true })
    t.same(await closeOutside(second), [])
    t.same([await forwards('ipv4'), await forwards('ipv6')], [true, true], 'the first one still needs it')
    // As after a restart of the host's firewall service.
    await outputIn(null, 'nft', 'delete', 'table', 'inet', `${interfaceName.replace('-', '_')}_outside`)
    t.same(await closeOutside(interfaceName), [])
    await closeOutside(interfaceName)
    t.same([await forwards('ipv4'), await forwards('ipv6')], before, 'the host forwards as before')
    t.same(conf(), settings, 'and its other settings are as before')
  })

  await t.test('forwarding stays on for software that came later', async t => {
    const other = `test_${instance}`
    await guardOutside({ ...outside, cidrs: ['198.18.79.0/24'], enabled: true })
    await outputIn(
      null,
      'nft',
      `add table ip ${other}; add chain ip ${other} out { type nat hook postrouting priority srcnat; }`,
    )
    t.same(await closeOutside(interfaceName), [`ip ${other}`])
    t.ok(await forwards('ipv4'))
  })
}

if (isApart) t.test('machines on the public network reach what the host reaches, if the operator says so', reachOutside)
else t.test('the doctor reads firewalls', readFirewalls)
