import t from 'tap'
import { harms, type Target } from '../../support/faults/drifts.js'
import { createAmphora, until } from '../../support/worlds/amphora.js'
import { BACKEND, desire, server } from '../../support/worlds/amphora-desired.js'
import { datagramListener } from '../../support/worlds/datagrams-desired.js'

const URL = 'http://127.0.0.1:8080/'
const MAC = '02:00:0a:43:00:01'
const VIP = '10.67.0.100'

const amphora = await createAmphora()
t.teardown(amphora.destroy)
const { traffic } = amphora
for (const number of [1, 2]) await traffic.ask('member', { port: 9000 + number, name: `member-${number}` })

const sh = (text: string) => amphora.inside('bash', '-c', text)
const haproxy = (command: string) => sh(`echo '${command}' | socat -t5 - UNIX:/run/krater/haproxy.sock`)
const target: Target = {
  listener: 'listener-1',
  backend: BACKEND,
  server: 'member-1',
  nic: 'vip0',
  vip: `${VIP}/32`,
  route: '198.51.100.0/24',
}
/** The connection limits of HAProxy, the listener and the server. */
const limits = () => {
  const cell = (row: string) => new RegExp(`^${row}(?:,[^,]*){4},(\\d*)`, 'm').exec(haproxy('show stat'))?.[1] || 'none'
  const [, all] = /^Maxconn: (\d+)$/m.exec(haproxy('show info')) ?? []
  return [all, cell(`${target.listener},FRONTEND`), cell(`${BACKEND},${target.server}`)].join(' ')
}
const serves = () =>
  traffic.get(URL).then(
    ({ status }) => (status === 200 ? true : null),
    () => null,
  )
const told = () => traffic.reports().flatMap(({ repairs }) => repairs.map(({ text }) => text))

const desired = desire({
  generation: 1,
  servers: [server(1), server(2)],
  global: ['maxconn 400'],
  maxconn: 300,
  changes: {
    interfaces: [
      {
        mac: MAC,
        name: 'vip0',
        mtu: 1500,
        addresses: ['10.67.0.11/24'],
        routes: [{ destination: '198.51.100.0/24', gateway: '10.67.0.2' }],
        vips: [{ address: VIP, subnet: '10.67.0.0/24', gateway: '10.67.0.2' }],
      },
    ],
    pair: { address: '10.67.0.11', peers: ['10.67.0.12'] },
  },
})
const CURRENT = '/run/krater/config/current'
const isOurFile = () => {
  try {
    return amphora.readFile(`${CURRENT}/haproxy.cfg`) === desired.haproxy?.text
  } catch {
    return false
  }
}

sh(`ip link add p0 type veth peer name p1 && ip link set p0 address ${MAC} && ip link set p1 up`)
const agent = await amphora.connect()
await agent.apply(desired)
agent.end()

type Drift = { name: string; bring: string; mended: () => boolean | Promise<boolean | null> | null; text: RegExp }

const drifts: Drift[] = [
  {
    name: "HAProxy's file is edited",
    bring: harms.editFile(),
    mended: isOurFile,
    text: /^HAProxy's file was changed/,
  },
  {
    name: "HAProxy's file is edited, and HAProxy reloaded with it",
    bring: harms.editFileAndReload(),
    mended: () => isOurFile() && told().includes('HAProxy was reloaded outside the agent'),
    text: /^HAProxy was reloaded/,
  },
  {
    name: "HAProxy's file is gone, and HAProxy killed",
    bring: harms.deleteFileAndKill(),
    mended: async () => isOurFile() && (await serves()),
    text: /^HAProxy exited unexpectedly/,
  },
  {
    name: "HAProxy's file is broken, and HAProxy killed",
    bring: harms.breakFileAndKill(),
    mended: async () => isOurFile() && (await serves()),
    text: /^HAProxy's file was changed/,
  },
  {
    name: 'HAProxy is stopped',
    bring: harms.stopHaproxy(),
    mended: async () => (await serves()) && !/^T.*haproxy/m.test(sh('ps -eo stat=,comm=')),
    text: /^HAProxy hung/,
  },
  {
    name: 'a server is disabled, and another drained',
    bring: `${harms.disableServer(target)}; echo 'set server ${BACKEND}/member-2 state drain' | socat -t5 - UNIX:/run/krater/haproxy.sock`,
    mended: () => haproxy('show servers state').match(/member-[12] 127.0.0.1 2 0 10 /g)?.length === 2,
    text: /member-[12] was out of service/,
  },
  {
    name: 'health checks are turned off',
    bring: harms.disableChecks(target),
    mended: () => told().some(text => text.includes('was not checked')) || null,
    text: /was not checked/,
  },
  {
    name: 'a listener is disabled',
    bring: harms.disableFrontend(target),
    mended: async () => (await serves()) && told().some(text => text.includes('listener-1 was disabled')),
    text: /listener-1 was disabled/,
  },
  {
    name: 'a listener is shut down',
    bring: harms.shutDownFrontend(target),
    mended: serves,
    text: /listener-1 was disabled/,
  },
  {
    name: 'limits of connections are lowered',
    bring: harms.lowerLimits(target),
    mended: () => limits() === '400 300 none' && told().some(text => text === 'HAProxy had connection limit 3'),
    text: /^listener listener-1 had connection limit 2$/,
  },
  {
    name: 'the limit of a server is lowered',
    bring: harms.lowerServerLimit(target),
    mended: () => limits() === '400 300 none' || null,
    text: /^server member-1 had connection limit 1$/,
  },
  {
    name: 'a route to members is lost',
    bring: harms.removeRoute(target),
    mended: () => amphora.inside('ip', 'route').includes('198.51.100.0/24') || null,
    text: /^network: route replace 198\.51\.100\.0\/24/,
  },
  {
    name: 'an address’s own route is lost',
    bring: harms.removeRoute({ ...target, route: '10.67.0.0/24' }),
    mended: () => /^10\.67\.0\.0\/24 dev vip0 proto kernel/m.test(amphora.inside('ip', 'route')) || null,
    text: /^network: route replace 10\.67\.0\.0\/24/,
  },
  {
    name: 'the packet filter is flushed',
    bring: harms.flushFilter(),
    mended: () => amphora.inside('nft', 'list', 'ruleset').includes('10.67.0.12') || null,
    text: /^the packet filter/,
  },
  {
    name: 'the network monitor is stopped, and a route to members is lost',
    bring: harms.stopWatchingAndRemoveRoute(target),
    mended: () => amphora.inside('ip', 'route').includes('198.51.100.0/24') || null,
    text: /^ip monitor, which watches the network, exited/,
  },
  {
    name: 'the packet filter monitor is killed, and the filter flushed',
    bring: harms.killWatcherAndFlushFilter(),
    mended: () => amphora.inside('nft', 'list', 'ruleset').includes('10.67.0.12') || null,
    text: /^nft monitor, which watches the network, exited/,
  },
  {
    name: "the agent's socket is removed",
    bring: harms.removeAgentSocket(),
    mended: () => amphora.fileExists('/run/krater/agent.sock') || null,
    text: /^the agent's socket was removed/,
  },
  {
    name: 'the state directory is deleted',
    bring: harms.deleteState(),
    mended: async () =>
      isOurFile() &&
      amphora.fileExists('/run/krater/agent.sock') &&
      amphora.fileExists('/run/krater/haproxy.sock') &&
      (await serves()),
    text: /replaced by a new HAProxy/,
  },
]

for (const { name, bring, mended, text } of drifts) {
  t.test(name, async t => {
    const before = told().length
    sh(bring)
    await until(async () => (await mended()) || null, 10_000)
    await until(
      () =>
        told()
          .slice(before)
          .some(line => text.test(line)) || null,
    )
    t.ok(await until(serves))
    t.match(traffic.beats().at(-1), { mismatches: [] })
  })
}

t.test('state directory deleted, agent killed: HAProxy keeps serving, the next agent needs an apply', async t => {
  const beats = traffic.beats().length
  sh('rm -rf /run/krater')
  await amphora.killAgent()
  await until(
    () =>
      traffic
        .beats()
        .slice(beats)
        .some(({ needsApply }) => needsApply) || null,
  )
  t.ok(await serves())
  const successor = await amphora.connect()
  t.equal((await successor.apply({ ...desired, fence: 2 })).appliedSha256, desired.sha256)
  t.ok(await until(serves))
  successor.end()
})

t.test('the disk is full: changes still apply, and heartbeats report it', async t => {
  sh('mount -o remount,size=8m /run; cat /dev/zero >/run/fill 2>/dev/null || true')
  await until(() => traffic.beats().at(-1)?.mismatches.includes('disk') || null)
  const agent = await amphora.connect()
  const other = desire({ generation: 2, fence: 3, servers: [server(1)], changes: { interfaces: desired.interfaces } })
  t.equal((await agent.apply(other)).appliedSha256, other.sha256)
  sh(harms.killHaproxy())
  t.ok(await until(serves), 'HAProxy starts')
  agent.end()
  await amphora.killAgent()
  const successor = await amphora.connect()
  t.match(await successor.ask('hello'), { appliedSha256: other.sha256 }, 'the agent starts too')
  successor.end()
  sh('rm /run/fill')
  await until(() => traffic.beats().at(-1)?.mismatches.length === 0 || null)
  sh('cat /dev/zero >/run/fill 2>/dev/null || true')
  await until(() => traffic.beats().at(-1)?.mismatches.includes('disk') || null)
  sh('rm /run/fill')
  await until(() => told().some(line => line.startsWith('the disk was full')) || null)
})

t.test('heartbeats report an interface that is missing or has no carrier', async t => {
  sh('ip link set p1 down')
  await until(() => traffic.beats().at(-1)?.mismatches.includes('interface') || null)
  sh('ip link set p1 up')
  await until(() => traffic.beats().at(-1)?.mismatches.length === 0 || null)
  sh('ip link delete p1')
  await until(() => traffic.beats().at(-1)?.mismatches.includes('interface') || null)
  sh(`ip link add p0 type veth peer name p1 && ip link set p0 address ${MAC} && ip link set p1 up`)
  await until(() => traffic.beats().at(-1)?.mismatches.length === 0 || null)
  t.match(amphora.inside('ip', 'addr', 'show', 'dev', 'vip0'), VIP)
})

t.test('a UDP listener, which HAProxy does not have, is not missing there', async t => {
  const agent = await amphora.connect()
  const listener = datagramListener(1, { poolId: null })
  await agent.apply(
    desire({
      ...{ generation: 3, fence: 4, servers: [server(1)] },
      changes: {
        interfaces: desired.interfaces,
        datagrams: { vips: [VIP], listeners: [listener], pools: [] },
        objects: { listeners: [target.listener, listener.id], pools: [] },
      },
    }),
  )
  agent.end()
  const beats = traffic.beats().length
  await until(() => traffic.beats().length > beats + 2 || null)
  t.notOk(told().some(text => text.includes(listener.id)))
})

t.test('a reload that leaves a difference is repeated ever more rarely', async t => {
  const agent = await amphora.connect()
  const objects = { listeners: [target.listener, 'listener-9'], pools: [] }
  const changes = { interfaces: desired.interfaces, objects }
  await agent.apply(desire({ generation: 4, fence: 5, servers: [server(1)], changes }))
  agent.end()
  const reloads = () =>
    new Set(
      traffic
        .reports()
        .flatMap(({ repairs }) => repairs.filter(({ text }) => text.includes('listener-9')).map(({ atMs }) => atMs)),
    )
  const [first = 0, second = 0, third = 0] = await until(() => (reloads().size >= 3 ? [...reloads()] : null), 20_000)
  t.ok(second - first >= 900, `${second - first} ms`)
  t.ok(third - second >= 1_900, `${third - second} ms`)
  await until(() => traffic.beats().at(-1)?.mismatches.includes('haproxy') || null)
})
