import { randomBytes, randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { flowsOf } from '../../../controller/network/local/connections/conntrack.js'
import { ip, ipBatch } from '../../../controller/network/local/ip-command.js'
import { namespacesNamed } from '../../../controller/network/local/namespace.js'
import { applyRouter, removeOtherRouters, routerState } from '../../../controller/network/local/routers/apply.js'
import { type Router, routerNamespace, routerNamespaces } from '../../../controller/network/local/routers/router.js'
import { createWorld, giveAddresses, nic } from '../../support/worlds/fabric-world.js'
import { inhabit } from '../../support/worlds/inhabitant.js'

const macAddress = () => `fa:16:3e:${randomBytes(3).toString('hex').match(/../g)!.join(':')}`
const port = (networkId: string, ...addresses: string[]) => ({
  networkId,
  portId: randomUUID(),
  mtu: 1450,
  macAddress: macAddress(),
  addresses,
})

/** Sends to a closed UDP port, and prints the error. */
const CLOSED = `const socket = require('dgram').createSocket('udp4')
  socket.on('error', error => { console.log(error.code); process.exit() })
  socket.connect(9, process.argv[1], () => socket.send('x'))
  setTimeout(() => process.exit(), 2000)`
/** Begins 10,000 flows of UDP, to ports from the given one on. */
const FLOOD = `use Socket; socket(my $s, PF_INET, SOCK_DGRAM, 0); my ($to, $from) = (inet_aton($ARGV[0]), $ARGV[1]);
  bind($s, sockaddr_in(4000, INADDR_ANY)); send($s, 'x', 0, sockaddr_in($from + $_, $to)) for 1 .. 10000`
const ANYWHERE = { 4: '0.0.0.0/0', 6: '::/0' }

/** An external network with a machine, and two routers with subnets that overlap, with a machine on each. */
async function createRoutedWorld(t: Test) {
  const world = await createWorld(t)
  const { fabric } = world
  t.teardown(() => removeOtherRouters(fabric, []))
  const external = randomUUID()
  /** Besides its addresses, a machine has others that it uses only when told to. */
  const settle = async (
    name: string,
    networkId: string,
    addresses: string[],
    gateways: string[] = [],
    others: string[] = [],
  ) => {
    const namespace = await world.machine(name)
    await fabric.attach(nic(namespace, networkId, ...[...addresses, ...others].map(each => each.split('/')[0]!)))
    await giveAddresses(namespace, ...addresses)
    await ipBatch(
      namespace,
      others.map(each => `address add ${each} dev eth0 preferred_lft 0${each.includes(':') ? ' nodad' : ''}`),
    )
    await ipBatch(
      namespace,
      gateways.map(via => `route add ${ANYWHERE[via.includes(':') ? 6 : 4]} via ${via} dev eth0`),
    )
    return { namespace, ...(await inhabit(name, (program, args) => world.start(namespace, program, args))) }
  }
  const gateway = (...addresses: string[]) => ({
    ...port(external, ...addresses),
    nextHops: ['198.51.100.1', 'fd51::1'],
    subnets: ['198.51.100.0/24', 'fd51::/64'],
    snatAddress: addresses[0]!.split('/')[0]!,
  })
  const [netA, netA2, netB] = [randomUUID(), randomUUID(), randomUUID()]
  const a: Router = {
    id: randomUUID(),
    interfaces: [port(netA, '10.0.0.1/24', 'fd0a::1/64'), port(netA2, '10.0.1.1/24')],
    gateway: gateway('198.51.100.10/24', 'fd51::a/64'),
    floatingIps: [{ address: '198.51.100.50', fixedAddress: '10.0.0.10' }],
    routes: [],
  }
  const b: Router = {
    id: randomUUID(),
    interfaces: [port(netB, '10.0.0.1/24', 'fd0b::1/64')],
    gateway: gateway('198.51.100.20/24', 'fd51::b/64'),
    floatingIps: [{ address: '198.51.100.60', fixedAddress: '10.0.0.10' }],
    routes: [],
  }
  await applyRouter(fabric, a)
  await applyRouter(fabric, b)
  return {
    ...world,
    routers: { a, b },
    namespaceOf: (router: Router) => routerNamespace(fabric.instance, router.id),
    // Each of these two may also send as somebody on the other’s side.
    outside: await settle(
      'outside',
      external,
      ['198.51.100.1/24', 'fd51::1/64'],
      ['fd51::a'],
      ['10.0.0.77/32', 'fd0a::77/128'],
    ),
    a1: await settle('a1', netA, ['10.0.0.10/24', 'fd0a::10/64'], ['10.0.0.1', 'fd0a::1'], ['fd51::99/128']),
    a2: await settle('a2', netA, ['10.0.0.11/24'], ['10.0.0.1']),
    a3: await settle('a3', netA2, ['10.0.1.10/24'], ['10.0.1.1']),
    b1: await settle('b1', netB, ['10.0.0.10/24', 'fd0b::10/64'], ['10.0.0.1', 'fd0b::1']),
  }
}

t.test('routers', async t => {
  const world = await createRoutedWorld(t)
  const { fabric, outside, a1, a2, a3, b1, routers, namespaceOf } = world
  const unlessAnswered = { waitMs: 700 }

  await t.test('translate what leaves, for machines with and without a floating IP', async t => {
    t.equal(await a2.ask('198.51.100.1'), 'outside 198.51.100.10', 'by the address of the gateway port')
    t.equal(await a3.ask('198.51.100.1', { protocol: 'udp' }), 'outside 198.51.100.10', 'from the other subnet, by UDP')
    t.equal(await a1.ask('198.51.100.1'), 'outside 198.51.100.50', 'by its floating IP')
    t.equal(await b1.ask('198.51.100.1'), 'outside 198.51.100.60', 'by the other router, from the same address')
    t.equal(await a1.ask('10.0.1.10'), 'a3 10.0.0.10', 'and nothing between subnets of one router')
  })

  await t.test('lead to a floating IP from everywhere', async t => {
    t.equal(await outside.ask('198.51.100.50'), 'a1 198.51.100.1', 'from the external network')
    t.equal(await outside.ask('198.51.100.60', { protocol: 'udp' }), 'b1 198.51.100.1')
    t.equal(await a2.ask('198.51.100.50'), 'a1 198.51.100.10', 'from the same subnet')
    t.equal(await a1.ask('198.51.100.50'), 'a1 198.51.100.50', 'from itself')
    t.equal(await a3.ask('198.51.100.50'), 'a1 198.51.100.10', 'from another subnet of the router')
    t.equal(await b1.ask('198.51.100.50'), 'a1 198.51.100.60', 'from another router’s network')
  })

  await t.test('route IPv6 without translation', async t => {
    t.equal(await a1.ask('fd51::1'), 'outside fd0a::10')
    t.equal(await outside.ask('fd0a::10'), 'a1 fd51::1')
  })

  await t.test('let nobody in by another way', async t => {
    await ipBatch(`test-${world.instance}-outside`, ['route add 10.0.0.0/24 via 198.51.100.10 dev eth0'])
    t.equal(await outside.ask('10.0.0.11', unlessAnswered), null, 'by a route to the subnet behind SNAT')
    t.equal(await outside.ask('198.51.100.10', unlessAnswered), null, 'nothing listens on the gateway port’s address')
    await ipBatch(`test-${world.instance}-a2`, [
      'address add 198.51.100.77/32 dev eth0',
      'address add 10.0.9.9/32 dev eth0',
    ])
    t.equal(await a2.ask('198.51.100.1', { from: '10.0.9.9', ...unlessAnswered }), null, 'with somebody else’s address')
  })

  await t.test('let nobody pass for a machine of the other side', async t => {
    const claim = { destination: 'fd51::99/128', nextHop: 'fd0a::10' }
    await applyRouter(fabric, { ...routers.a, routes: [claim] })
    const seen = (match: string) => `table netdev seen
delete table netdev seen
table netdev seen { chain in { type filter hook ingress device "eth0" priority 0; ${match} counter; }; }
`
    for (const [from, to, spoofed, target, protocol] of [
      [outside, a1, '10.0.0.77', '198.51.100.50', 'ip'],
      [outside, a1, 'fd0a::77', 'fd0a::10', 'ip6'],
      [a1, outside, 'fd51::99', 'fd51::1', 'ip6'],
    ] as const) {
      await world.feed(to.namespace, 'nft', ['-f', '-'], seen(`${protocol} saddr ${spoofed}`))
      await from.ask(target, { from: spoofed, protocol: 'udp', waitMs: 100 })
      t.match(await from.ask(target), /^\w/, 'what comes later arrives')
      t.match(await world.run(to.namespace, 'nft', 'list', 'table', 'netdev', 'seen'), /packets 0 /, spoofed)
    }
    await applyRouter(fabric, routers.a)
  })

  await t.test('tell of packets that are too big, and of closed ports, whatever they translate', async t => {
    const leg = (port: { portId: string }, kind: string) => `${kind}-${port.portId.replaceAll('-', '').slice(0, 11)}`
    const links = [leg(routers.a.interfaces[0]!, 'qr'), leg(routers.a.gateway!, 'qg')]
    const resize = (dev: string, mtu: number) => ip(['-n', namespaceOf(routers.a), 'link', 'set', dev, 'mtu', `${mtu}`])
    const big = (from: { namespace: string }, to: string) =>
      world
        .run(from.namespace, 'sh', '-c', `ping -M do -c 2 -i 0.2 -W 1 -s 1350 ${to} 2>&1 || :`)
        .then(text => /mtu ?= ?1300/.test(text))
    await resize(links[0]!, 1300)
    t.ok(await big(outside, '198.51.100.50'), 'to a floating IP')
    await resize(links[0]!, 1450)
    await resize(links[1]!, 1300)
    t.ok(await big(a2, '198.51.100.1'), 'behind SNAT')
    t.ok(await big(a1, 'fd51::1'), 'in IPv6')
    await resize(links[1]!, 1450)
    const closed = (from: { namespace: string }, to: string) =>
      world.run(from.namespace, process.execPath, '-e', CLOSED, to).then(text => text.trim())
    t.equal(await closed(outside, '198.51.100.50'), 'ECONNREFUSED', 'at a floating IP')
    t.equal(await closed(a2, '198.51.100.1'), 'ECONNREFUSED', 'from behind SNAT')
  })

  await t.test('lose no leg to a flood from another', async t => {
    const kept = await a2.open('198.51.100.1')
    for (const from of [10_000, 20_000, 30_000, 40_000]) {
      await world.run(a2.namespace, 'perl', '-e', FLOOD, '198.51.100.1', `${from}`)
    }
    const count = Number(await world.run(namespaceOf(routers.a), 'conntrack', '-C'))
    t.ok(count > 30_000 && count < 33_500, `${count} connections`)
    t.equal(await a3.ask('198.51.100.1'), 'outside 198.51.100.10', 'another leg')
    t.equal(await outside.ask('198.51.100.50'), 'a1 198.51.100.1', 'the gateway’s leg')
    t.equal(await a2.say(kept), 'outside 198.51.100.10', 'a connection from before')
    t.equal(await a2.ask('198.51.100.1', unlessAnswered), null, 'its own share is used up')
    await world.run(namespaceOf(routers.a), 'conntrack', '-F')
    t.equal(await a2.ask('198.51.100.1'), 'outside 198.51.100.10')
  })

  await t.test('keep connections while others change', async t => {
    const [byFloating, bySnat, ofB] = [
      await outside.open('198.51.100.50'),
      await a2.open('198.51.100.1'),
      await b1.open('198.51.100.1'),
    ]
    const { id, interfaces, gateway } = routers.a
    const second = { address: '198.51.100.51', fixedAddress: '10.0.0.11' }
    routers.a = { ...routers.a, floatingIps: [...routers.a.floatingIps, second] }
    await applyRouter(fabric, routers.a)
    t.equal(await outside.ask('198.51.100.51'), 'a2 198.51.100.1', 'a new floating IP leads')
    t.equal(await a2.ask('198.51.100.1'), 'outside 198.51.100.51', 'and new connections leave by it')
    t.equal(await a2.say(bySnat), 'outside 198.51.100.10', 'what left before keeps its address')
    t.equal(await outside.say(byFloating), 'a1 198.51.100.1')

    const bySecond = await outside.open('198.51.100.51')
    routers.a = { id, interfaces: interfaces.slice(0, 1), gateway, routes: [], floatingIps: [second] }
    await applyRouter(fabric, routers.a)
    t.equal(await outside.say(byFloating, 700), null, 'a removed floating IP ends its own connections')
    t.equal(await outside.ask('198.51.100.50', unlessAnswered), null)
    t.equal(await outside.say(bySecond), 'a2 198.51.100.1', 'and no others')
    t.equal(await a2.say(bySnat), 'outside 198.51.100.10')
    const addresses = (await flowsOf(namespaceOf(routers.a))).flatMap(({ original, reply }) => [
      original.destination,
      reply.destination,
    ])
    t.notOk(addresses.includes('198.51.100.50'), 'nothing tracked mentions it')

    await removeOtherRouters(fabric, [routers.a, routers.b])
    await applyRouter(fabric, routers.b)
    t.equal(await b1.say(ofB), 'outside 198.51.100.60')
    t.equal(await a3.ask('198.51.100.1', unlessAnswered), null, 'the removed leg is gone')
  })

  await t.test('announce a floating IP that moves to another router', async t => {
    const moved = { address: '198.51.100.60', fixedAddress: '10.0.0.10' }
    t.equal(await outside.ask(moved.address), 'b1 198.51.100.1')
    routers.b = { ...routers.b, floatingIps: [] }
    await applyRouter(fabric, routers.b)
    routers.a = { ...routers.a, floatingIps: [...routers.a.floatingIps, moved] }
    await applyRouter(fabric, routers.a)
    t.equal(
      await outside.ask(moved.address),
      'a1 198.51.100.1',
      'who knew the former router’s MAC address finds the new one',
    )
  })

  await t.test('are repaired whatever is missing or wrong', async t => {
    const namespace = namespaceOf(routers.a)
    const [gateway] = [`qg-${routers.a.gateway!.portId.replaceAll('-', '').slice(0, 11)}`]
    const wanted = await routerState(fabric, routers.a.id)
    for (const [what, damage] of [
      ['an address', () => ip(['-n', namespace, 'address', 'delete', '198.51.100.51/32', 'dev', gateway])],
      ['a route', () => ip(['-n', namespace, 'route', 'delete', 'default'])],
      ['a leg', () => ip(['-n', namespace, 'link', 'delete', gateway])],
      ['a leg that is down', () => ip(['-n', namespace, 'link', 'set', gateway, 'down'])],
      ['a foreign address', () => ip(['-n', namespace, 'address', 'add', '198.51.100.99/32', 'dev', gateway])],
      ['the table', () => world.run(namespace, 'nft', 'delete', 'table', 'inet', 'krater')],
      ['the namespace', () => ip(['netns', 'delete', namespace])],
    ] as const) {
      await damage()
      t.not(await routerState(fabric, routers.a.id), wanted, `${what}: seen`)
      await applyRouter(fabric, routers.a)
      t.equal(await routerState(fabric, routers.a.id), wanted, `${what}: repaired`)
      t.equal(await outside.ask('198.51.100.51'), 'a2 198.51.100.1', what)
    }
  })

  await t.test('are removed with everything that belongs to them', async t => {
    await removeOtherRouters(fabric, [routers.b])
    t.same(namespacesNamed(routerNamespaces(fabric.instance)), [namespaceOf(routers.b)])
    t.same(
      (await fabric.attachedLegs()).sort(),
      [...routers.b.interfaces, routers.b.gateway!].map(({ portId }) => portId).sort(),
    )
    await removeOtherRouters(fabric, [])
    t.same(namespacesNamed(routerNamespaces(fabric.instance)), [])
  })
})
