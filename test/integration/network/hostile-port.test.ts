import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../../support/eventually.js'
import { createWorld, giveAddresses, nic } from '../../support/worlds/fabric-world.js'
import { inhabit } from '../../support/worlds/inhabitant.js'

const SENDER = join(import.meta.dirname, '../../support/faults/hostile-port.pl')

/** Counts, at a machine, forged frames and an honest one. */
const counters = (mac: string, forged: string, own: string) => `table netdev seen
delete table netdev seen
table netdev seen {
  chain in {
    type filter hook ingress device "eth0" priority 0;
    ether saddr ${mac} ${forged} counter return
    ether saddr ${mac} arp saddr ip ${own} counter
  }
}
`

t.test('a hostile port neither takes over a VIP nor leaves its network', async t => {
  const world = await createWorld(t)
  const { fabric, run } = world
  const networkId = randomUUID()
  const [VIP, VIP6] = ['10.0.0.100', 'fd00::100']
  const settle = async (name: string, host: number, ...allowed: string[]) => {
    const namespace = await world.machine(name)
    const addresses = [`10.0.0.${host}`, `fd00::${host}`]
    const port = nic(namespace, networkId, ...addresses, ...allowed)
    await fabric.attach(port)
    await giveAddresses(namespace, `10.0.0.${host}/24`, `fd00::${host}/64`)
    return { ...port, own: addresses[0]! }
  }
  const amphora = await settle('amphora', 2, VIP, VIP6)
  const hostile = await settle('hostile', 3)
  const leg = { ...(await settle('router', 4)), forwards: 'anything' as const }
  await fabric.detach(leg.portId)
  await fabric.attach(leg)
  await giveAddresses(leg.namespace, '10.0.0.4/24', 'fd00::4/64')
  const victim = await settle('victim', 5)

  type Port = { namespace: string; macAddress: string; own: string }
  /** Sends a forged frame, then an honest one. @returns how many forged ones the victim got before the honest one */
  const forge = async (from: Port, kind: string, address: string, forged: string): Promise<number> => {
    await world.feed(victim.namespace, 'nft', ['-f', '-'], counters(from.macAddress, forged, from.own))
    const counts = async () => {
      const text = await run(victim.namespace, 'nft', 'list', 'table', 'netdev', 'seen')
      return [...text.matchAll(/packets (\d+)/g)].map(([, count]) => Number(count))
    }
    await send(from, kind, address)
    await send(from, 'arp', from.own)
    await eventually('the honest frame arrives', async () => (await counts())[1]! > 0)
    return (await counts())[0]!
  }
  const send = (from: { namespace: string; macAddress: string }, kind: string, address: string) =>
    run(from.namespace, 'perl', SENDER, 'eth0', kind, from.macAddress, address)

  for (const [kind, address, match] of [
    ['arp', VIP, `arp saddr ip ${VIP}`],
    ['na', VIP6, `ip6 saddr ${VIP6}`],
    ['vrrp', amphora.own, 'ip protocol 112'],
  ] as const) {
    t.equal(await forge(amphora, kind, address, match), 1, `the amphora sends ${kind}`)
    t.equal(await forge(hostile, kind, address, match), 0, `a neighbour sends no ${kind} as the amphora`)
    t.equal(await forge(leg, kind, address, match), 0, `a router sends no ${kind} as the amphora`)
  }
  t.equal(await forge(hostile, 'vrrp', hostile.own, 'ip protocol 112'), 1, 'what the amphora’s own guard must judge')
  const own6 = 'fd00::3'
  for (const [kind, address, match] of [
    ['ra', own6, 'icmpv6 type nd-router-advert'],
    ['hidden', own6, 'frag frag-off 1'],
    ['dhcp', hostile.own, 'udp sport 67'],
    ['probe', victim.own, 'arp saddr ip 0.0.0.0'],
  ] as const) {
    t.equal(await forge(hostile, kind, address, match), 0, `no ${kind}, though its addresses are its own`)
  }
  t.equal(await forge(hostile, 'probe', hostile.own, 'arp saddr ip 0.0.0.0'), 1, 'a probe for an address of its own')
  t.equal(await forge(leg, 'ra', 'fd00::4', 'icmpv6 type nd-router-advert'), 0, 'a router is none for hosts')
  t.equal(await forge(leg, 'hidden', 'fd00::9', 'frag frag-off 1'), 0, 'nor does it pass fragments of one on')
  for (const kind of ['tagged', 'double']) {
    t.equal(
      await forge(hostile, kind, hostile.own, 'vlan id 7'),
      0,
      `no frame is ${kind}, though its addresses are its own`,
    )
  }
})

t.test('a port sends from its allowed address pairs, and from anything without port security', async t => {
  const world = await createWorld(t)
  const networkId = randomUUID()
  const settle = async (name: string, host: number, more: object = {}) => {
    const namespace = await world.machine(name)
    const port = nic(namespace, networkId, `10.0.0.${host}`, `fd00::${host}`)
    await world.fabric.attach({ ...port, ...more })
    await giveAddresses(namespace, `10.0.0.${host}/24`, `fd00::${host}/64`)
    return { ...port, ...(await inhabit(name, (program, args) => world.start(namespace, program, args))) }
  }
  const { macAddress } = nic('', networkId)
  const pairs = [
    { address: '10.0.0.64/26', macAddress },
    { address: 'fd00::40/124', macAddress },
  ]
  const paired = await settle('paired', 2, { macAddress, pairs })
  const open = await settle('open', 3, { isOpen: true })
  await settle('other', 4)
  await giveAddresses(paired.namespace, '10.0.0.70/24', 'fd00::41/64', '10.0.0.20/24', 'fd00::20/64')
  await giveAddresses(open.namespace, '10.0.0.30/24', 'fd00::30/64')
  t.equal(await paired.ask('10.0.0.4', { from: '10.0.0.70' }), 'other 10.0.0.70')
  t.equal(await paired.ask('fd00::4', { from: 'fd00::41' }), 'other fd00::41')
  t.equal(await paired.ask('10.0.0.4', { from: '10.0.0.20', waitMs: 700 }), null, 'no other address')
  t.equal(await paired.ask('fd00::4', { from: 'fd00::20', waitMs: 700 }), null)
  t.equal(await open.ask('10.0.0.4', { from: '10.0.0.30' }), 'other 10.0.0.30')
  t.equal(await open.ask('fd00::4', { from: 'fd00::30' }), 'other fd00::30')

  await world.run(open.namespace, 'perl', SENDER, 'eth0', 'macs', open.macAddress, '10.0.0.3')
  const known = await world.run(world.fabric.namespace, 'bridge', 'fdb', 'show')
  const learned = known.match(/^02:00:/gm)?.length ?? 0
  t.ok(learned > 100 && learned < 1024, `the kernel does not remember all MAC addresses of a flood, but ${learned}`)
  t.equal(await open.ask('10.0.0.4', { from: '10.0.0.30' }), 'other 10.0.0.30', 'its own stays known')
})
