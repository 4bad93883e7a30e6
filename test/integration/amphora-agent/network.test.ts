import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import t from 'tap'
import type { Desired, Interface } from '../../../amphora-agent/protocol/desired.js'
import { HAPROXY_TRACK_FILE } from '../../../amphora-agent/protocol/paths.js'
import { createAmphora, createNamespace, until } from '../../support/worlds/amphora.js'
import { desire, server, type Wish } from '../../support/worlds/amphora-desired.js'

const VIP_MAC = '02:00:0a:42:00:01'
const MEMBER_MAC = '02:00:0a:42:01:01'
const VIP = '10.66.0.100'
const VIP6 = 'fd66::100'

const amphora = await createAmphora()
const client = createNamespace()
t.teardown(async () => {
  await client.end()
  await amphora.destroy()
})
await client.ready
const clientTraffic = amphora.trafficIn(client.pid)
t.teardown(() => clientTraffic.end())
await amphora.traffic.ask('member', { port: 9001, name: 'member-1' })

/** Connects the amphora, with this MAC address, to the client. */
function plug(mac: string, peer: string): void {
  const inNetwork = (...args: string[]) =>
    execFileSync('nsenter', ['-t', String(amphora.initPid), '-n', 'ip', ...args], { stdio: 'pipe' })
  const name = `p${mac.replaceAll(':', '').slice(-6)}`
  inNetwork('link', 'add', name, 'address', mac, 'type', 'veth', 'peer', 'name', peer)
  inNetwork('link', 'set', peer, 'netns', String(client.pid))
  client.ip('link', 'set', peer, 'up')
}

const vipInterface = (changes: Partial<Interface> = {}): Interface => ({
  mac: VIP_MAC,
  name: 'vip0',
  mtu: 1400,
  addresses: ['10.66.0.11/24', 'FD66:0::11/64'],
  routes: [],
  vips: [
    { address: VIP, subnet: '10.66.0.0/24', gateway: '10.66.0.2' },
    { address: VIP6, subnet: 'fd66::/64', gateway: 'fd66::2' },
  ],
  ...changes,
})
const memberInterface = (changes: Partial<Interface> = {}): Interface => ({
  mac: MEMBER_MAC,
  name: 'member0',
  mtu: 1500,
  addresses: ['10.66.1.11/24'],
  routes: [],
  vips: [],
  ...changes,
})

let generation = 0
const next = (interfaces: Interface[], wish: Partial<Wish> = {}): Desired =>
  desire({
    servers: [server(1)],
    bind: ':::8080 v4v6',
    ...wish,
    generation: ++generation,
    changes: { interfaces, ...wish.changes },
  })

const addressesOf = (name: string): string[] => {
  const [nic] = JSON.parse(amphora.inside('ip', '-json', 'addr', 'show', 'dev', name))
  return (nic.addr_info as { local: string; prefixlen: number; scope: string }[])
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
    .sort()
}
const neighbour = (address: string) => client.ip('neigh', 'show', address)
const ALL = ['10.66.0.100/32', '10.66.0.11/24', 'fd66::100/128', 'fd66::11/64']

const agent = await amphora.connect()

t.test('an apply waits for an interface that is plugged later, names it, and serves its VIPs', async t => {
  const applied = agent.apply(next([vipInterface()]))
  await new Promise(resolve => setTimeout(resolve, 300))
  plug(VIP_MAC, 'c0')
  client.ip('addr', 'add', '10.66.0.2/24', 'dev', 'c0')
  client.ip('addr', 'add', 'fd66::2/64', 'dev', 'c0', 'nodad')
  client.ip('addr', 'add', '192.0.2.7/32', 'dev', 'lo')
  client.ip('addr', 'add', '2001:db8::7/128', 'dev', 'lo')
  t.match(await applied, { transition: 'start' })
  t.strictSame(addressesOf('vip0'), ALL)
  t.match(amphora.inside('ip', 'link', 'show', 'vip0'), /mtu 1400 .*state UP/s)
  t.match(await clientTraffic.get(`http://${VIP}:8080/`), { status: 200, body: 'member-1' })
  t.match(await clientTraffic.get(`http://[${VIP6}]:8080/`), { status: 200, body: 'member-1' })
  const { interfaces } = await agent.ask('status')
  t.match(
    interfaces.find(({ name }) => name === 'vip0'),
    { mac: VIP_MAC, addresses: ['10.66.0.11/24', '10.66.0.100/32', 'fd66::100/128', 'fd66::11/64'] },
  )
  await until(() => (amphora.traffic.beats().at(-1)?.vrrpMaster ? true : null))
})

t.test('the same state again changes nothing', async t => {
  const before = amphora.inside('ip', '-json', 'addr', 'show') + amphora.inside('ip', 'route', 'show', 'table', 'all')
  t.match(await agent.apply(next([vipInterface()])), { transition: 'unchanged' })
  t.equal(amphora.inside('ip', '-json', 'addr', 'show') + amphora.inside('ip', 'route', 'show', 'table', 'all'), before)
})

t.test('replies from a VIP leave by its subnet’s gateway, whatever the other routes', async t => {
  plug(MEMBER_MAC, 'c1')
  const elsewhere = memberInterface({
    routes: [
      { destination: '0.0.0.0/0', gateway: '10.66.1.254' },
      { destination: '192.0.2.0/24', gateway: '10.66.1.254' },
    ],
  })
  t.match(await agent.apply(next([vipInterface(), elsewhere])), { transition: 'runtime' })
  t.match(amphora.inside('ip', 'route', 'show'), 'default via 10.66.1.254 dev member0')
  t.match(await clientTraffic.get(`http://${VIP}:8080/`, '192.0.2.7'), { status: 200 })
  t.match(await clientTraffic.get(`http://[${VIP6}]:8080/`, '2001:db8::7'), { status: 200 })
})

t.test('neighbours learn a VIP’s new MAC address at once', async t => {
  const [second, second6] = ['10.66.0.101', 'fd66::101']
  for (const address of [second, second6]) {
    client.ip('neigh', 'replace', address, 'lladdr', '02:00:00:00:00:99', 'dev', 'c0', 'nud', 'stale')
  }
  // The kernel ignores a second announcement within a second of the last change.
  await new Promise(resolve => setTimeout(resolve, 1_100))
  const vips = [
    ...vipInterface().vips,
    { address: second, subnet: '10.66.0.0/24', gateway: null },
    { address: second6, subnet: 'fd66::/64', gateway: null },
  ]
  t.match(await agent.apply(next([vipInterface({ vips }), memberInterface()])), { transition: 'runtime' })
  await until(() => (neighbour(second).includes(VIP_MAC) && neighbour(second6).includes(VIP_MAC) ? true : null))
  t.match(await clientTraffic.get(`http://${second}:8080/`), { status: 200 })
})

t.test('addresses, routes and rules that are no longer desired are removed', async t => {
  await agent.apply(next([vipInterface({ addresses: ['10.66.0.12/24'] }), memberInterface()]))
  t.strictSame(addressesOf('vip0'), ['10.66.0.100/32', '10.66.0.12/24', 'fd66::100/128'])
  t.notMatch(amphora.inside('ip', 'route', 'show'), 'default')
  t.equal(amphora.inside('ip', 'rule').match(/10\.66\.0\.\d+/g)?.length, 1)
  t.equal(amphora.inside('ip', '-6', 'rule').match(/fd66::\d+/g)?.length, 1)
  t.match(await clientTraffic.get(`http://${VIP}:8080/`), { status: 200 })
})

t.test('a route that the kernel refuses does not fail the others', async t => {
  const routes = [
    { destination: '198.51.100.0/24', gateway: '8.8.8.8' },
    { destination: '203.0.113.0/24', gateway: '10.66.1.254' },
  ]
  t.match(
    await agent.apply(next([vipInterface(), memberInterface({ addresses: ['10.66.1.11/24', 'fd67::1/64'], routes })])),
    {
      transition: 'runtime',
    },
  )
  t.match(amphora.inside('ip', 'route', 'show'), '203.0.113.0/24 via 10.66.1.254')
  const { lines } = await agent.ask('logs', { lines: 50 })
  t.ok(lines.some(line => line.includes('198.51.100.0/24')))
})

t.test('addresses, routes and rules removed by hand are restored without an apply', async t => {
  await agent.apply(next([vipInterface(), memberInterface()]))
  const isWhole = () => addressesOf('vip0').length === ALL.length && amphora.inside('ip', 'rule').includes(VIP)
  amphora.inside('ip', 'addr', 'del', `${VIP}/32`, 'dev', 'vip0')
  amphora.inside('ip', 'rule', 'del', 'from', VIP)
  await until(() => isWhole() || null)
  t.match(await clientTraffic.get(`http://${VIP}:8080/`, '192.0.2.7'), { status: 200 })
  amphora.inside('ip', 'link', 'set', 'vip0', 'down')
  amphora.inside('ip', 'addr', 'flush', 'dev', 'member0')
  await until(() => (isWhole() && amphora.inside('ip', 'route').includes('dev member0')) || null)
  t.match(await clientTraffic.get(`http://${VIP}:8080/`, '192.0.2.7'), { status: 200 })
  const told = () => amphora.traffic.reports().flatMap(({ repairs }) => repairs.map(({ text }) => text))
  await until(() => told().some(text => text.startsWith(`network: addr add ${VIP}/32 dev vip0`)) || null)
})

t.test('interfaces can swap their names', async t => {
  t.match(await agent.apply(next([vipInterface({ name: 'member0' }), memberInterface({ name: 'vip0' })])), {
    transition: 'runtime',
  })
  t.strictSame(addressesOf('member0'), ALL)
  t.strictSame(addressesOf('vip0'), ['10.66.1.11/24'])
  t.match(await clientTraffic.get(`http://${VIP}:8080/`), { status: 200 })
  await agent.apply(next([vipInterface(), memberInterface()]))
  t.strictSame(addressesOf('vip0'), ALL)
})

t.test('a failed apply leaves the network as it was', async t => {
  const taken = { bind: `10.66.0.55:9001,127.0.0.1:9001` }
  const error = await agent.refusal(next([vipInterface({ addresses: ['10.66.0.55/24'] }), memberInterface()], taken))
  t.equal(error.code, 'rolled-back')
  t.strictSame(addressesOf('vip0'), ALL)
  t.match(await clientTraffic.get(`http://${VIP}:8080/`), { status: 200 })
})

t.test('in a pair, keepalived holds the VIPs', async t => {
  const keepalived = (lines: string[] = []) => {
    const text = `global_defs {
  router_id amphora
  vrrp_version 3
  script_user root
  enable_script_security
}
vrrp_track_file haproxy {
  file ${HAPROXY_TRACK_FILE}
  weight 0
}
vrrp_instance lb {
  state BACKUP
  nopreempt
  interface vip0
  virtual_router_id 1
  priority 100
  advert_int 0.1
  unicast_src_ip 10.66.0.11
  unicast_peer {
    10.66.0.12
  }
  virtual_ipaddress {
    ${VIP}/32 dev vip0
  }
  track_file {
    haproxy
  }
${lines.join('\n')}
}
`
    return { text, sha256: createHash('sha256').update(text).digest('hex') }
  }
  const pair = (lines: string[] = [], wish: Partial<Wish> = {}) =>
    next(
      [vipInterface({ vips: [{ address: VIP, subnet: '10.66.0.0/24', gateway: '10.66.0.2' }] }), memberInterface()],
      {
        ...wish,
        changes: { keepalived: keepalived(lines), ...wish.changes },
      },
    )
  const holdsVip = () => addressesOf('vip0').includes(`${VIP}/32`)
  // The file is missing for a moment between two processes.
  const PID_FILE = '/run/krater/keepalived.pid'
  const pidOf = () => (amphora.fileExists(PID_FILE) ? Number(amphora.readFile(PID_FILE)) : 0)

  await agent.apply(next([vipInterface({ vips: [] }), memberInterface()]))

  await t.test('starts, becomes MASTER, and reports it in hello and in heartbeats', async t => {
    t.equal(holdsVip(), false)
    t.equal((await agent.ask('hello')).holdsVip, false)
    await until(() => (amphora.traffic.beats().at(-1)?.generation === generation ? true : null))
    await agent.apply(pair())
    await until(() => (holdsVip() ? true : null))
    t.equal((await agent.ask('hello')).holdsVip, true)
    await until(() => (amphora.traffic.beats().at(-1)?.vrrpMaster ? true : null))
    t.match(await clientTraffic.get(`http://${VIP}:8080/`), { status: 200 })
  })

  await t.test(
    'a new configuration is loaded without losing the VIP; a change of members leaves keepalived alone',
    async t => {
      const pid = pidOf()
      t.match(await agent.apply(pair(['  accept'])), { transition: 'runtime' })
      t.equal(holdsVip(), true)
      await agent.apply(pair(['  accept'], { servers: [server(1, { weight: 3 })] }))
      t.equal(pidOf(), pid)
      t.equal(holdsVip(), true)
    },
  )

  await t.test('a configuration that keepalived refuses leaves the VIP in place', async t => {
    const error = await agent.refusal(pair(['  advert_int never']))
    t.match(error, { code: 'invalid-configuration', details: /advert_int|never/i })
    t.equal(holdsVip(), true)
  })

  await t.test('HAProxy dies: keepalived releases the VIP at once, and takes it back when HAProxy serves', async t => {
    amphora.inside('bash', '-c', 'cd /run/krater/config/current && cp haproxy.cfg good && echo bogus > haproxy.cfg')
    amphora.inside('bash', '-c', 'kill -9 $(cat /run/krater/haproxy.pid)')
    await until(() => (holdsVip() ? null : true), 2_000)
    amphora.inside('bash', '-c', 'cd /run/krater/config/current && mv good haproxy.cfg')
    t.ok(await until(() => (holdsVip() ? true : null)))
  })

  await t.test('keepalived killed -9: exactly one runs again', async t => {
    const pid = pidOf()
    amphora.inside('kill', '-9', String(pid))
    await until(() => (![0, pid].includes(pidOf()) && amphora.fileExists(`/proc/${pidOf()}`) ? true : null))
    await until(() => (holdsVip() ? true : null))
    t.equal(amphora.inside('bash', '-c', 'grep -l ^keepalived /proc/[0-9]*/comm | wc -l').trim(), '2')
  })

  await t.test('only the peer reaches the stick-table port and may speak VRRP', async t => {
    const asPair = (address: string, ...peers: string[]) =>
      pair(['  accept'], { bind: ':::8080,:::1025 v4v6', changes: { pair: { address, peers } } })
    const askFrom = (from: string, host: string) => clientTraffic.get(`http://${host}:1025/`, from)
    const connects = (host: string) => {
      const shell = ['-n', 'timeout', '0.4', 'bash', '-c', `exec 3<>/dev/tcp/${host}/1025`]
      return spawnSync('nsenter', ['-t', String(client.pid), ...shell]).status === 0
    }
    const rules = () => amphora.inside('nft', 'list', 'ruleset')
    client.ip('addr', 'add', '10.66.0.12/24', 'dev', 'c0')
    client.ip('addr', 'add', 'fd66::12/64', 'dev', 'c0', 'nodad')
    await agent.apply(asPair('10.66.0.11', '10.66.0.12'))
    t.match(await askFrom('10.66.0.12', '10.66.0.11'), { status: 200 })
    t.match(await askFrom('10.66.0.2', VIP), { status: 200 }, 'on the VIP, a listener may use the same port')
    t.equal(connects('10.66.0.11'), false, 'another host cannot connect')
    t.match(rules(), /l4proto (112|vrrp) ip saddr != 10\.66\.0\.12 drop/)

    t.match(await agent.apply(asPair('fd66::11', 'fd66::12')), { transition: 'runtime' })
    t.match(await askFrom('fd66::12', '[fd66::11]'), { status: 200 })
    client.ip('addr', 'del', 'fd66::12/64', 'dev', 'c0')
    t.equal(connects('fd66::11'), false, 'another host cannot connect')
    t.match(await askFrom('10.66.0.2', '10.66.0.11'), { status: 200 }, 'the former address is no longer protected')

    const changes = { pair: { address: '10.66.0.11', peers: ['10.66.0.12'] } }
    const error = await agent.refusal(pair(['  accept'], { bind: '10.66.0.55:9001,127.0.0.1:9001', changes }))
    t.equal(error.code, 'rolled-back')
    t.match(rules(), 'ip6 daddr fd66::11 ', 'a failed apply does not change the rules')
    await agent.apply(pair(['  accept']))
    t.equal(rules().trim(), '')
  })

  await t.test('agent killed -9: keepalived keeps running', async t => {
    const pid = pidOf()
    await amphora.killAgent()
    const successor = await amphora.connect()
    await successor.apply(pair(['  accept']))
    successor.end()
    t.equal(pidOf(), pid)
    t.equal(holdsVip(), true)
  })
})

t.test(
  'an empty desired state removes VIPs and rules; members are reached until their interface is unplugged',
  async t => {
    const again = await amphora.connect()
    t.match(await again.apply(next([], { changes: { haproxy: null } })), { transition: 'stop' })
    t.strictSame(addressesOf('vip0'), [])
    t.strictSame(addressesOf('member0'), ['10.66.1.11/24'])
    t.notMatch(amphora.inside('ip', 'rule'), /10\.66/)
    again.end()
  },
)
