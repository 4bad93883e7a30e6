import { execFileSync } from 'node:child_process'
import t from 'tap'
import type { Desired, Interface } from '../../../amphora-agent/protocol/desired.js'
import type { Handover } from '../../../amphora-agent/protocol/handover.js'
import { FLOWS_PORT } from '../../../amphora-agent/protocol/paths.js'
import { createAmphora, createNamespace, until } from '../../support/worlds/amphora.js'
import {
  desireDatagrams,
  datagramListener as listener,
  datagramMember as member,
  datagramPool as pool,
  poolId,
} from '../../support/worlds/datagrams-desired.js'

const VIP = '10.66.0.100'
const VIP6 = 'fd66::100'
/** A client that is reached by the VIP's gateway only. */
const FAR = '192.0.2.7'
const SUBNETS: Handover['vips'] = [
  { address: VIP, subnet: '10.66.0.0/24', gateway: '10.66.0.2' },
  { address: VIP6, subnet: 'fd66::/64', gateway: 'fd66::2' },
]

/** Clients and members are in one namespace, which has a bridge for each network. */
const hub = createNamespace()
const amphorae = await Promise.all([createAmphora(), createAmphora()])
const [old, successor] = amphorae
const gone = new Set<typeof old>()
t.teardown(async () => {
  for (const amphora of amphorae) if (!gone.has(amphora)) await amphora.destroy()
  await hub.end()
})
await hub.ready
const traffic = old.trafficIn(hub.pid)
t.teardown(() => traffic.end())

for (const bridge of ['vips', 'members']) {
  // Its own MAC address: it keeps it when an amphora goes.
  hub.ip('link', 'add', bridge, 'address', `02:00:0a:42:0${bridge.length}:fe`, 'type', 'bridge')
  hub.ip('link', 'set', bridge, 'up')
}
for (const [bridge, ...addresses] of [
  ['vips', '10.66.0.2/24', 'fd66::2/64', `${FAR}/32`],
  ['members', '10.66.1.1/24', '10.66.1.2/24', 'fd66:1::101/64', 'fd66:1::102/64'],
] as const) {
  for (const address of addresses)
    hub.ip('addr', 'add', address, 'dev', bridge, ...(address.includes(':') ? ['nodad'] : []))
}
for (const number of [1, 2, 101, 102]) {
  const { address, port } = member(number)
  await traffic.ask('datagramMember', { name: `member-${number}`, address, port })
}

const own = (host: number) => `10.66.0.${host}`
function interfacesOf(host: number, vips: Interface['vips']): Interface[] {
  const routes = [{ destination: '192.0.2.0/24', gateway: '10.66.1.254' }]
  return [
    {
      mac: `02:00:0a:42:00:${host}`,
      name: 'vip0',
      mtu: 1500,
      addresses: [`${own(host)}/24`, `fd66::${host}/64`],
      routes: [],
      vips,
    },
    {
      mac: `02:00:0a:42:01:${host}`,
      name: 'member0',
      mtu: 1500,
      addresses: [`10.66.1.${host}/24`, `fd66:1::${host}/64`],
      routes,
      vips: [],
    },
  ]
}
for (const [amphora, host] of [
  [old, 11],
  [successor, 12],
] as const) {
  for (const [nic, bridge] of [
    [0, 'vips'],
    [1, 'members'],
  ] as const) {
    const { mac } = interfacesOf(host, [])[nic]!
    const names = [
      `p${nic}`,
      'address',
      mac,
      'type',
      'veth',
      'peer',
      'name',
      `${bridge[0]}${host}`,
      'netns',
      String(hub.pid),
    ]
    execFileSync('nsenter', ['-t', String(amphora.initPid), '-n', 'ip', 'link', 'add', ...names], { stdio: 'pipe' })
    hub.ip('link', 'set', `${bridge[0]}${host}`, 'master', bridge, 'up')
  }
  // As on every machine: what goes through the tunnel is not for the machine itself, although it has the VIP.
  for (const family of ['-4', '-6']) {
    amphora.inside('ip', family, 'rule', 'add', 'priority', '60', 'table', 'local')
    amphora.inside('ip', family, 'rule', 'del', 'priority', '0')
  }
}

const persistence = { seconds: 60, bits: { ipv4: 32, ipv6: 128 } }
const content = {
  listeners: [listener(1), listener(2, { port: 54, poolId: poolId(2) })],
  pools: [
    pool(
      1,
      [1, 2, 101, 102].map(number => member(number)),
    ),
    pool(
      2,
      [1, 2, 101, 102].map(number => member(number)),
      { persistence },
    ),
  ],
}
let generation = 0
async function apply(amphora: typeof old, host: number, vips: Interface['vips'], pair: Desired['pair'] = null) {
  const agent = await amphora.connect()
  await agent.apply(
    desireDatagrams(++generation, content, {
      interfaces: interfacesOf(host, vips),
      datagrams: { vips: [VIP, VIP6], ...content },
      pair,
    }),
  )
  agent.end()
}
async function ask(amphora: typeof old, request: Record<string, unknown>) {
  const agent = await amphora.connect()
  t.match(await agent.send(request), { ok: true })
  agent.end()
}
const draining = async () => {
  const agent = await old.connect()
  const { drain } = await agent.ask('hello')
  agent.end()
  return drain
}

async function open(name: string, address: string, from?: string) {
  await traffic.ask('openFlow', { name, address, port: 53, from })
  return () => traffic.ask<string>('flow', { name })
}
const datagrams = (port: number, from?: string) =>
  traffic.ask<string[]>('datagrams', { address: VIP, port, from, count: 2 })
/** It is a flow, too. */
const sendFromPort0 = () =>
  execFileSync('nsenter', [
    ...['-t', String(hub.pid), '-n', 'perl', '-MSocket', '-e'],
    `socket(my $raw, AF_INET, SOCK_RAW, 17); send $raw, pack('n4 a', 0, 53, 9, 0, '?'), 0, pack_sockaddr_in(0, inet_aton('${VIP}')) or die $!`,
  ])
const memberOf = (answer: string) => answer.split(' ')[0]

t.test('in a pair, the other amphora knows which clients are bound to members', async t => {
  await apply(old, 11, SUBNETS, { address: own(11), peers: [own(12)] })
  await apply(successor, 12, [], { address: own(12), peers: [own(11)] })
  const known = memberOf((await datagrams(54))[0]!)
  const six = (await traffic.ask<string[]>('datagrams', { address: VIP6, port: 54, count: 1 }))[0]!
  const learned = (family: 4 | 6) =>
    successor.inside(
      'nft',
      'list',
      'map',
      'inet',
      'krater_datagrams',
      `clients${family}_${family === 4 ? 32 : 128}_${poolId(2).replaceAll('-', '')}`,
    )
  await until(() => (learned(4).includes('10.66.0.2 ') && learned(6).includes('fd66::2 ') ? true : null))
  await apply(old, 11, [])
  await apply(successor, 12, SUBNETS)
  await until(async () => (/ 10\.66\.1\.12$/.test((await datagrams(53))[0]!) ? true : null))
  t.strictSame((await datagrams(54)).map(memberOf), [known, known])
  const [again] = await traffic.ask<string[]>('datagrams', { address: VIP6, port: 54, count: 1 })
  t.equal(memberOf(again!), memberOf(six))
  await apply(successor, 12, [])
})

t.test('the VIP moves: flows stay with the amphora where they began, and clients with their members', async t => {
  await apply(old, 11, SUBNETS)
  await apply(successor, 12, [])
  const flows = [await open('near', VIP), await open('six', VIP6), await open('far', VIP, FAR)]
  const before = await Promise.all(flows.map(send => send()))
  t.match(before, [/^member-[12] 10.66.1.11$/, /^member-10[12] fd66:1::11$/, /^member-[12] 10.66.1.11$/])
  sendFromPort0()
  const known = memberOf((await datagrams(54))[0]!)
  const knownFar = memberOf((await datagrams(54, FAR))[0]!)

  const handover = (role: Handover['role'], host: number, peer: number) => ({
    verb: 'handover',
    handover: { role, own: own(host), peer: own(peer), interface: 'vip0', vips: SUBNETS, seconds: 60 },
  })
  await ask(old, handover('leaving', 11, 12))
  await ask(successor, handover('taking-over', 12, 11))
  await apply(successor, 12, SUBNETS)
  await apply(old, 11, [])
  await ask(successor, { verb: 'announce' })
  await ask(old, { verb: 'drain', seconds: 20 })
  await until(async () => (/ 10\.66\.1\.12$/.test((await datagrams(53))[0]!) ? true : null))
  for (let round = 0; round < 3; round++) {
    t.strictSame(await Promise.all(flows.map(send => send())), before)
    for (const answer of await datagrams(53)) t.match(answer, / 10\.66\.1\.12$/, 'a new flow begins at the successor')
  }
  t.strictSame((await datagrams(54)).map(memberOf), [known, known])
  t.strictSame((await datagrams(54, FAR)).map(memberOf), [knownFar, knownFar])
  t.match(await draining(), { ended: false })

  await successor.killAgent()
  t.strictSame(await Promise.all(flows.map(send => send())), before, 'the next agent goes on with it')
  const agent = await successor.connect()
  agent.end()
  t.strictSame(await Promise.all(flows.map(send => send())), before)

  /** How often the old amphora has answered which flows it has. */
  const told = () => old.inside('ss', '-Htan', 'state', 'time-wait', `sport = :${FLOWS_PORT}`).split('\n').length
  await old.killAgent()
  const toldBefore = told()
  await until(async () => {
    t.strictSame(await Promise.all(flows.map(send => send())), before, 'neither does the end of the old one’s agent')
    return told() > toldBefore + 1 ? true : null
  })
  t.match(await draining(), { ended: false })
})

t.test('a drain lasts as long as there are packets, and at most as long as it may', async t => {
  await traffic.ask('endFlow', { name: 'six' })
  const started = performance.now()
  let last = ''
  await until(async () => {
    last = await traffic.ask<string>('flow', { name: 'near' })
    return (await draining())?.ended ? true : null
  }, 30_000)
  t.ok(performance.now() - started < 23_000)
  t.match(await draining(), { cut: 1 }, 'the flow that still had packets')
  // The other amphora heard of the end before the controller, which removes this one.
  const moved = () => successor.inside('nft', 'list', 'set', 'inet', 'krater_handover', 'begun_there_0')
  await until(() => (moved().includes('elements') ? null : true), 500)
  gone.add(old)
  await old.destroy()
  t.match(last, /^member/)
  // The kernel takes a while to end the network of a machine.
  await until(async () =>
    / 10\.66\.1\.12$/.test(await traffic.ask<string>('flow', { name: 'near' }))
      ? 'it begins anew at the successor'
      : null,
  )
})
