import { execFileSync } from 'node:child_process'
import t from 'tap'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import type { Handover } from '../../../amphora-agent/protocol/handover.js'
import { createAmphora, createNamespace, until } from '../../support/worlds/amphora.js'
import { desire, server } from '../../support/worlds/amphora-desired.js'

const MAC = '02:00:0a:43:00:01'
const [VIP, OWN, PEER] = ['10.67.0.100', '10.67.0.11', '10.67.0.12']
const TUNNEL = 'handover0'

const amphora = await createAmphora()
const client = createNamespace()
t.teardown(async () => {
  await client.end()
  await amphora.destroy()
})
await client.ready
await amphora.traffic.ask('member', { port: 9001, name: 'member-1' })
execFileSync('nsenter', [
  ...['-t', String(amphora.initPid), '-n', 'ip', 'link', 'add', 'p0', 'address', MAC],
  ...['type', 'veth', 'peer', 'name', 'vip', 'netns', String(client.pid)],
])

const vips: Handover['vips'] = [{ address: VIP, subnet: '10.67.0.0/24', gateway: null }]
const leaving = (seconds: number): Handover => ({
  role: 'leaving',
  own: OWN,
  peer: PEER,
  interface: 'vip0',
  vips,
  seconds,
})
const nic = { mac: MAC, name: 'vip0', mtu: 1500, addresses: [`${OWN}/24`], routes: [] }
const lost = { ...nic, vips: [] }
const held = { ...nic, vips }

/** The answer of whichever agent runs now. */
async function ask(request: Record<string, unknown>) {
  const agent = await amphora.connect()
  try {
    return await agent.send(request)
  } finally {
    agent.end()
  }
}

const apply = async ({ generation, interfaces }: { generation: number; interfaces: Desired['interfaces'] }) =>
  t.match(
    await ask({ verb: 'apply', desired: desire({ generation, servers: [server(1)], changes: { interfaces } }) }),
    {
      ok: true,
    },
  )

async function drained() {
  const agent = await amphora.connect()
  try {
    return (await agent.ask('hello')).drain
  } finally {
    agent.end()
  }
}

const inside = (...words: string[]) => amphora.inside('ip', ...words)
const hasTunnel = () => inside('-o', 'link').includes(TUNNEL)

/** When the drift check has restored a file twice, it has compared everything else in between. */
async function compared() {
  const file = '/run/krater/config/current/haproxy.cfg'
  for (const _round of [1, 2]) {
    amphora.inside('rm', file)
    await until(() => amphora.fileExists(file) || null)
  }
}

const FILE = '/run/krater/handover.json'

/**
 * Removes a file or directory with the agent's handover state, and waits until the agent has rewritten the
 * state.
 */
async function lose(path: string) {
  // In one step, because the agent may rewrite files that are removed one by one.
  amphora.inside('mv', path, '/run/lost')
  await until(() => [FILE, '/run/krater/agent.sock'].every(amphora.fileExists) || null)
}

t.test('a handover', async t => {
  await apply({ generation: 1, interfaces: [held] })
  t.match(await ask({ verb: 'handover', handover: leaving(60) }), { ok: true })

  await t.test('keeps the VIP on the loopback interface once the VIP has moved', async t => {
    await apply({ generation: 2, interfaces: [lost] })
    t.match(inside('-o', 'addr', 'show', 'dev', 'lo'), VIP)
    t.notMatch(inside('-o', 'addr', 'show', 'dev', 'vip0'), VIP)
    t.match(inside('rule'), `from ${VIP} lookup 300`)
  })
  await t.test('survives a repeated request and the death of the agent', async t => {
    const index = inside('-o', 'link', 'show', TUNNEL).split(':')[0]
    t.match(await ask({ verb: 'handover', handover: leaving(60) }), { ok: true })
    await amphora.killAgent()
    t.equal(await drained(), null)
    t.equal(inside('-o', 'link', 'show', TUNNEL).split(':')[0], index, 'the tunnel is the same')
  })
  await t.test('is known to the next agent after its files are removed', async t => {
    const index = inside('-o', 'link', 'show', TUNNEL).split(':')[0]
    await lose('/run/krater')
    await compared()
    await amphora.killAgent()
    t.match(await ask({ verb: 'handover', handover: leaving(60) }), { ok: true })
    t.equal(inside('-o', 'link', 'show', TUNNEL).split(':')[0], index, 'the tunnel is the same')
  })
  await t.test('ends by itself and leaves nothing behind', async t => {
    t.match(await ask({ verb: 'handover', handover: leaving(1) }), { ok: true })
    await until(() => !hasTunnel() || null)
    await until(() => !amphora.inside('nft', 'list', 'tables').includes('handover') || null)
    t.notMatch(inside('rule'), VIP)
    t.notMatch(inside('-o', 'addr', 'show', 'dev', 'lo'), VIP)
    t.equal(amphora.inside('cat', '/proc/sys/net/ipv4/conf/vip0/forwarding').trim(), '0')
  })
  await t.test('creates no tunnel on the amphora that already holds the VIP', async t => {
    await apply({ generation: 3, interfaces: [held] })
    const handover = { ...leaving(60), role: 'taking-over' }
    t.match(await ask({ verb: 'handover', handover }), { ok: true })
    t.notOk(hasTunnel())
  })
  await t.test('leaves nothing behind when its set-up fails', async t => {
    const impossible = { ...leaving(60), interface: 'nowhere0' }
    t.match(await ask({ verb: 'handover', handover: impossible }), { ok: false })
    t.notOk(hasTunnel())
    t.notMatch(amphora.inside('nft', 'list', 'tables'), /handover/)
  })
})

t.test('an amphora that drains', async t => {
  await apply({ generation: 4, interfaces: [held] })
  await amphora.traffic.ask('openRequest', { port: 8080 })
  t.match(await ask({ verb: 'drain', seconds: 600 }), { ok: true })

  await t.test('accepts no new connections', async t => {
    await until(async () => (await amphora.traffic.get('http://127.0.0.1:8080/').catch(() => true)) === true || null)
    t.match(await drained(), { ended: false })
  })
  await t.test('keeps draining when the agent is killed', async t => {
    await amphora.killAgent()
    t.match(await drained(), { ended: false })
  })
  await t.test('keeps draining when its file is removed and the agent is killed', async t => {
    await lose(FILE)
    await amphora.killAgent()
    t.match(await drained(), { ended: false })
    await t.rejects(amphora.traffic.get('http://127.0.0.1:8080/'), 'HAProxy does not serve again')
  })
  await t.test('is not changed by the drift check', async t => {
    const haproxy = async () => (await (await amphora.connect()).ask('status')).haproxy
    const before = await haproxy()
    inside('addr', 'del', `${VIP}/32`, 'dev', 'vip0')
    await compared()
    t.same(await haproxy(), before)
    t.notMatch(inside('-o', 'addr', 'show', 'dev', 'vip0'), VIP)
    t.match(await drained(), { ended: false })
  })
  await t.test('cuts what is left at the limit, reports the number, and does not serve again', async t => {
    t.match(await ask({ verb: 'drain', seconds: 0 }), { ok: true })
    const drain = await until(async () => {
      const drain = await drained()
      return drain?.ended === true ? drain : null
    })
    t.same(drain, { ended: true, cut: 1 })
    await amphora.killAgent()
    t.same(await drained(), { ended: true, cut: 1 })
    await compared()
    t.same((await (await amphora.connect()).ask('status')).haproxy, { running: false, pid: null, workers: 0 })
  })
})

t.test('an amphora whose HAProxy is killed during a drain reports the lost connections', async t => {
  const doomed = await createAmphora()
  t.teardown(doomed.destroy)
  const { traffic } = doomed
  await traffic.ask('member', { port: 9001, name: 'member-1' })
  let agent = await doomed.connect()
  const apply = (generation: number) => {
    const frontend = [`http-response set-header X-Round ${generation}`]
    return agent.apply(desire({ generation, servers: [server(1)], frontend }))
  }
  const openRequests = async (count: number) => {
    for (let i = 0; i < count; i++) await traffic.ask('openRequest', { port: 8080 })
  }
  const drain = (): { cut: number; underWay: { pid: number; count: number }[] } =>
    JSON.parse(doomed.readFile(FILE)).drain
  const workerWith = (expected: number) => drain().underWay.find(({ count }) => count === expected)?.pid
  const kill = (pid: number | null | undefined) => doomed.inside('kill', '-9', String(pid))

  await apply(1)
  await traffic.ask('hold', { url: 'http://127.0.0.1:8080/', name: 'held' })
  await apply(2)
  await openRequests(3)
  await apply(3)
  await openRequests(2)
  t.match(await agent.send({ verb: 'drain', seconds: 600 }), { ok: true })
  await until(() => [1, 3, 2].every(workerWith) || null)

  await t.test('completed connections are not lost', async t => {
    await traffic.ask('release')
    t.equal(await traffic.ask('held', { name: 'held' }), 'complete')
    await until(() => drain().underWay.length === 2 || null)
    t.equal(drain().cut, 0)
  })
  await t.test('the connections of a killed old worker are lost', async t => {
    kill(workerWith(3))
    await until(() => drain().underWay.length === 1 || null)
    t.equal(drain().cut, 3)
  })
  await t.test('all connections are lost with HAProxy, even when the agent dies', async t => {
    await doomed.killAgent()
    agent = await doomed.connect()
    kill((await agent.ask('status')).haproxy.pid)
    const told = await until(async () => {
      const { drain } = await agent.ask('hello')
      return drain?.ended === true ? drain : null
    })
    t.equal(told.cut, 5)
    agent.end()
  })
})
