import { execFileSync } from 'node:child_process'
import t from 'tap'
import type { DatagramListener, DatagramPool } from '../../../amphora-agent/protocol/datagrams.js'
import type { Interface } from '../../../amphora-agent/protocol/desired.js'
import { createAmphora, createNamespace } from '../../support/worlds/amphora.js'
import {
  datagramListener,
  datagramMember,
  datagramPool,
  desireDatagrams,
} from '../../support/worlds/datagrams-desired.js'

const VIP = '10.66.0.100'
const VIP6 = 'fd66::100'
const OWN = '10.66.1.11'
const OWN6 = 'fd66:1::11'

const amphora = await createAmphora()
const client = createNamespace()
const members = createNamespace()
t.teardown(async () => {
  await client.end()
  await members.end()
  await amphora.destroy()
})
await Promise.all([client.ready, members.ready])
const clients = amphora.trafficIn(client.pid)
const services = amphora.trafficIn(members.pid)
t.teardown(() => {
  clients.end()
  services.end()
})

const vip0: Interface = {
  mac: '02:00:0a:42:00:01',
  name: 'vip0',
  mtu: 1500,
  addresses: ['10.66.0.11/24', 'fd66::11/64'],
  routes: [],
  vips: [
    { address: VIP, subnet: '10.66.0.0/24', gateway: '10.66.0.2' },
    { address: VIP6, subnet: 'fd66::/64', gateway: 'fd66::2' },
  ],
}
const member0: Interface = {
  mac: '02:00:0a:42:01:01',
  name: 'member0',
  mtu: 1500,
  addresses: [`${OWN}/24`, `${OWN6}/64`],
  routes: [],
  vips: [],
}

function plug({ mac }: Interface, other: typeof client): void {
  const name = `p${mac.replaceAll(':', '').slice(-6)}`
  const link = ['link', 'add', name, 'address', mac, 'type', 'veth', 'peer', 'name', 'c0', 'netns', String(other.pid)]
  execFileSync('nsenter', ['-t', String(amphora.initPid), '-n', 'ip', ...link], { stdio: 'pipe' })
  other.ip('link', 'set', 'c0', 'up')
}
plug(vip0, client)
plug(member0, members)
for (const host of [2, 3, 4]) {
  client.ip('addr', 'add', `10.66.0.${host}/24`, 'dev', 'c0')
  client.ip('addr', 'add', `fd66::${host}/64`, 'dev', 'c0', 'nodad')
}
client.ip('addr', 'add', '192.0.2.7/32', 'dev', 'lo')
for (const number of [1, 2, 3, 101, 102]) {
  const { address, port } = datagramMember(number)
  const isIpv6 = address.includes(':')
  members.ip('addr', 'add', `${address}/${isIpv6 ? 64 : 24}`, 'dev', 'c0', ...(isIpv6 ? ['nodad'] : []))
  await services.ask('datagramMember', { name: `member-${number}`, address, port })
}

let generation = 0
const agent = await amphora.connect()
const apply = (listeners: DatagramListener[], pools: DatagramPool[], changes = {}) =>
  agent.apply(desireDatagrams(++generation, { listeners, pools }, { interfaces: [vip0, member0], ...changes }))

/** How often each member answered, and with `from`, which address it saw. */
async function asked(count: number, { to = VIP, port = 53, from }: { to?: string; port?: number; from?: string } = {}) {
  const answers = await clients.ask<string[]>('datagrams', { address: to, port, from, count })
  const tally: Record<string, number> = {}
  for (const answer of answers) tally[answer] = (tally[answer] ?? 0) + 1
  return tally
}

t.test('datagrams to a VIP of either family reach the members in turn, from the amphora’s own address', async t => {
  const pool = datagramPool(
    1,
    [1, 2, 101, 102].map(number => datagramMember(number)),
  )
  t.match(await apply([datagramListener(1)], [pool]), { transition: 'runtime' })
  t.strictSame(await asked(10), { [`member-1 ${OWN}`]: 5, [`member-2 ${OWN}`]: 5 })
  t.strictSame(await asked(10, { to: VIP6 }), { [`member-101 ${OWN6}`]: 5, [`member-102 ${OWN6}`]: 5 })
})

t.test('a client beyond the VIP’s gateway gets its answers by that gateway, whatever the other routes', async t => {
  const elsewhere = { ...member0, routes: [{ destination: '192.0.2.0/24', gateway: '10.66.1.1' }] }
  await apply([datagramListener(1)], [datagramPool(1, [datagramMember(1)])], { interfaces: [vip0, elsewhere] })
  t.strictSame(await asked(2, { from: '192.0.2.7' }), { [`member-1 ${OWN}`]: 2 })
})
