import t from 'tap'
import { encodeFrame } from '../../../amphora-agent/protocol/frames.js'
import { MAX_FRAME } from '../../../amphora-agent/protocol/messages.js'
import { createAmphora, until } from '../../support/worlds/amphora.js'
import { BACKEND, desire, LOAD_BALANCER, server } from '../../support/worlds/amphora-desired.js'

const URL = 'http://127.0.0.1:8080/'

const amphora = await createAmphora()
t.teardown(amphora.destroy)
const { traffic } = amphora
const agent = await amphora.connect()
for (const number of [1, 2, 3]) await traffic.ask('member', { port: 9000 + number, name: `member-${number}` })

let generation = 0
const next = (wish: Partial<Parameters<typeof desire>[0]> = {}) =>
  desire({ servers: [server(1), server(2)], ...wish, generation: wish.generation ?? ++generation })

/** Counts the answers of each member over `count` requests. */
async function answers(count: number): Promise<Record<string, number>> {
  const counted: Record<string, number> = {}
  for (let i = 0; i < count; i++) {
    const { status, body } = await traffic.get(URL)
    const who = status === 200 ? body : String(status)
    counted[who] = (counted[who] ?? 0) + 1
  }
  return counted
}

const runtime = (command: string) =>
  amphora.inside('bash', '-c', `echo '${command}' | socat -t5 - UNIX:/run/krater/haproxy.sock`)

/** Whether member-3 and its idle connections are removed. */
const isGone = () => !runtime('show servers state').includes('member-3') || null

t.test('a freshly started amphora reports that it needs an apply', async t => {
  const hello = await agent.ask('hello')
  t.match(hello, { appliedGeneration: 0, appliedSha256: null, protocolVersion: 1 })
  t.match(hello.haproxyVersion, /^\d+\.\d+/)
  t.match(hello.keepalivedVersion, /^\d+\.\d+/)
  const beat = await until(() => traffic.beats().at(-1) ?? null)
  t.match(beat, { needsApply: true, haproxyRunning: false, configHash: '0'.repeat(16), bootId: hello.bootId, keyId: 3 })
  t.equal(amphora.readFile('/run/krater/haproxy.track'), '-254\n')
})

t.test('the first apply starts HAProxy and answers once it serves', async t => {
  const desired = next()
  const result = await agent.apply(desired)
  t.match(result, { transition: 'start', appliedGeneration: desired.generation, appliedSha256: desired.sha256 })
  t.strictSame(await answers(4), { 'member-1': 2, 'member-2': 2 })
  t.match(await agent.ask('status'), { haproxy: { running: true, workers: 1 }, appliedSha256: desired.sha256 })
  t.equal(amphora.readFile('/run/krater/haproxy.track'), '0\n')
  const beat = await until(() => traffic.beats().findLast(beat => !beat.needsApply) ?? null)
  t.match(beat, { haproxyRunning: true, configHash: desired.sha256.slice(0, 16), generation: desired.generation })
})

t.test('the same state, even in a new generation, changes nothing', async t => {
  const { pid } = (await agent.ask('status')).haproxy
  t.match(await agent.apply(next({ generation })), { transition: 'unchanged' })
  const later = next()
  t.match(await agent.apply(later), { transition: 'unchanged', appliedGeneration: later.generation })
  t.equal((await agent.ask('status')).haproxy.pid, pid)
  t.equal((await agent.ask('hello')).appliedGeneration, later.generation)
})

t.test('members change at runtime, without a reload', async t => {
  const workers = () => /Pid: (\d+)/.exec(runtime('show info'))?.[1]
  const worker = workers()

  await t.test('weight', async t => {
    t.match(await agent.apply(next({ servers: [server(1, { weight: 30 }), server(2)] })), { transition: 'runtime' })
    t.strictSame(await answers(8), { 'member-1': 6, 'member-2': 2 })
  })

  await t.test('weight 0 drains the member, and is reported', async t => {
    t.match(await agent.apply(next({ servers: [server(1, { weight: 0 }), server(2)] })), { transition: 'runtime' })
    t.strictSame(await answers(4), { 'member-2': 4 })
    await until(() => (traffic.reports().at(-1)?.pools[0]?.members[0] === 'DRAIN' ? true : null))
  })

  await t.test('a new member', async t => {
    t.match(await agent.apply(next({ servers: [server(1), server(2), server(3)] })), { transition: 'runtime' })
    t.equal((await answers(9))['member-3'], 3)
  })

  await t.test('a member goes into maintenance and back', async t => {
    t.match(await agent.apply(next({ servers: [server(1), server(2), server(3, { disabled: true })] })), {
      transition: 'runtime',
    })
    t.equal((await answers(6))['member-3'], undefined)
    await until(() => (traffic.reports().at(-1)?.pools[0]?.members[2] === 'MAINT' ? true : null))
    t.match(await agent.apply(next({ servers: [server(1), server(2), server(3)] })), { transition: 'runtime' })
    t.equal((await answers(6))['member-3'], 2)
  })

  await t.test('a new disabled member gets no traffic; one without a check serves at once', async t => {
    const servers = [server(1), server(2, { weight: 7 }), server(4, { disabled: true }), server(3, { options: [] })]
    t.match(await agent.apply(next({ servers: [server(1), server(2)] })), { transition: 'runtime' })
    await until(isGone)
    t.match(await agent.apply(next({ servers })), { transition: 'runtime' })
    t.match(runtime('show servers state'), new RegExp(`${BACKEND} 4 member-4 \\S+ 0 1`))
    t.equal((await answers(9))['member-4'], undefined)
  })

  await t.test('a member leaves under load, and no request fails', async t => {
    t.match(await agent.apply(next({ servers: [server(1), server(2)] })), { transition: 'runtime' })
    await until(isGone)
    t.match(await agent.apply(next({ servers: [server(1), server(2), server(3)] })), { transition: 'runtime' })
    await traffic.ask('startLoad', { name: 'leave', url: URL, clients: 8 })
    t.match(await agent.apply(next({ servers: [server(1), server(2)] })), { transition: 'runtime' })
    await until(isGone)
    const { ok, errors } = await traffic.ask<{ ok: number; errors: string[] }>('endLoad', { name: 'leave' })
    t.strictSame(errors, [])
    t.ok(ok > 20, `${ok} requests`)
  })

  t.equal(workers(), worker, 'the worker is the same')
})

t.test('a change that is impossible at runtime is one reload with its reason', async t => {
  const slower = { options: ['check', 'inter', '250ms', 'fall', '2', 'rise', '2'] }
  t.match(await agent.apply(next({ servers: [server(1), server(2, slower)] })), {
    transition: 'reload',
    reason: /member-2 changed in more than weight/,
  })
  t.match(await agent.apply(next({ balance: 'leastconn' })), { transition: 'reload', reason: /more than pool members/ })
  t.strictSame(Object.keys(await answers(4)).sort(), ['member-1', 'member-2'])
})

t.test('a server changed by hand is restored', async t => {
  await agent.apply(next())
  const putRight = async () => {
    runtime(`set server ${BACKEND}/member-1 weight 99`)
    const { transition, reason } = await agent.apply(next({ generation }))
    t.match(runtime('show servers state'), /member-1 127.0.0.1 2 0 10 /)
    return { transition, reason }
  }
  let done = await putRight()
  // The drift check may be faster than the apply.
  for (let tries = 1; done.transition === 'unchanged' && tries < 20; tries++) done = await putRight()
  t.match(done, { transition: 'reload', reason: /drifted.*weight 99/ })
})

t.test('reloads fail no request, on kept or on new connections', async t => {
  await agent.apply(next())
  await traffic.ask('startLoad', { name: 'reloads', url: URL, clients: 12 })
  for (let i = 0; i < 6; i++) {
    const result = await agent.apply(next({ frontend: [`http-response set-header X-Round ${i}`] }))
    t.equal(result.transition, 'reload')
  }
  const { ok, errors } = await traffic.ask<{ ok: number; errors: string[] }>('endLoad', { name: 'reloads' })
  t.strictSame(errors, [])
  t.ok(ok > 200, `${ok} requests`)
})

t.test('counters only grow, and count every request, across reloads', async t => {
  const total = () => traffic.reports().findLast(report => report.listeners.length > 0)?.listeners[0]?.counters
  const poolTotal = () => traffic.reports().findLast(report => report.pools.length > 0)?.pools[0]?.counters
  await agent.apply(next())
  await answers(1)
  const before = await until(() => total()?.totalConnections ?? null)
  const from = traffic.received.length
  for (let i = 0; i < 3; i++) {
    await answers(10)
    await agent.apply(next({ frontend: [`http-response set-header X-Count ${i}`] }))
  }
  await answers(10)
  await until(() => ((total()?.totalConnections ?? 0) >= before + 40 ? true : null))
  t.ok((poolTotal()?.bytesOut ?? 0) > 0)
  let last = 0
  for (const report of traffic.reports().slice(-200)) {
    const now = report.listeners[0]?.counters.totalConnections ?? last
    t.ok(now >= last, `${now} after ${last}`)
    last = now
  }
  const epochs = new Set(traffic.received.slice(from).map(message => (message.kind === 'report' ? message.epoch : '')))
  epochs.delete('')
  t.equal(epochs.size, 1)
})

t.test('a refused apply changes nothing', async t => {
  const applied = next()
  await agent.apply(applied)
  const untouched = async () => {
    t.equal((await agent.ask('hello')).appliedSha256, applied.sha256)
    t.equal((await traffic.get(URL)).status, 200)
    t.strictSame(
      amphora
        .inside('ls', '/run/krater/config')
        .split('\n')
        .filter(name => /^\d+$/.test(name)).length,
      1,
      'no staged configuration remains',
    )
  }

  await t.test('a configuration that HAProxy refuses, with HAProxy’s message', async t => {
    const error = await agent.refusal(next({ frontend: ['bogus keyword'] }))
    t.match(error, { code: 'invalid-configuration', details: /unknown keyword 'bogus'/ })
    await untouched()
  })

  await t.test('member changes made before a check that then fails', async t => {
    const workers = () => /Pid: (\d+)/.exec(runtime('show info'))?.[1]
    const worker = workers()
    const desired = next({ servers: [server(1, { weight: 33 }), server(3)] })
    const text = desired.haproxy?.text.replace('weight 33', 'weight 33 bogus') ?? ''
    const haproxy = desired.haproxy && { ...desired.haproxy, text }
    const error = await agent.refusal({ ...desired, haproxy })
    t.match(error, { code: 'invalid-configuration', details: /'bogus'/ })
    const { lines } = await agent.ask('logs', { lines: 5000 })
    t.ok(
      lines.some(line =>
        line.includes(`generation ${desired.generation} took effect ahead of its check, which failed`),
      ),
    )
    t.match(runtime('show servers state'), /member-1 127.0.0.1 2 0 10 /)
    t.strictSame(Object.keys(await answers(4)).sort(), ['member-1', 'member-2'])
    t.equal(workers(), worker, 'the rollback needs no reload')
    await untouched()
  })

  await t.test('a configuration that fails only when loaded', async t => {
    const error = await agent.refusal(next({ bind: '127.0.0.1:9001' }))
    t.match(error, { code: 'rolled-back', details: /cannot bind socket|in use/ })
    await untouched()
  })

  await t.test('an older fence and an older generation', async t => {
    t.match(await agent.refusal(next({ generation: generation + 1, fence: 1 })), { code: 'stale-fence' })
    t.match(await agent.refusal(next({ generation: 1, fence: generation + 1 })), { code: 'stale-generation' })
    generation++
    await untouched()
  })

  await t.test('another load balancer', async t => {
    const other = { loadBalancerId: LOAD_BALANCER.replace('a', 'b') }
    t.match(await agent.refusal(next({ changes: other })), { code: 'malformed' })
    await untouched()
  })

  await t.test('a missing network interface', async t => {
    const nic = { mac: '02:00:00:00:00:77', name: 'vip0', mtu: 1500, addresses: [], routes: [], vips: [] }
    const error = await agent.refusal(next({ changes: { interfaces: [nic] } }))
    t.match(error, { code: 'interface-missing', message: /02:00:00:00:00:77/ })
    await untouched()
  })
})

t.test('a member that dies is reported DOWN within its check time and gets no more traffic', async t => {
  await agent.apply(next())
  const stateOf = (index: number) =>
    traffic.reports().findLast(report => report.pools.length > 0)?.pools[0]?.members[index]
  await until(() => (stateOf(1) === 'UP' ? true : null))
  await traffic.ask('endMember', { port: 9002 })
  const died = performance.now()
  await until(() => (stateOf(1) === 'DOWN' ? true : null))
  t.ok(performance.now() - died < 2_500, `${Math.round(performance.now() - died)} ms`)
  t.strictSame(await answers(4), { 'member-1': 4 })

  await t.test('it is still down from the first moment after a reload', async t => {
    const from = traffic.received.length
    t.match(await agent.apply(next({ frontend: ['http-response set-header X-Down 1'] })), { transition: 'reload' })
    t.match(runtime('show servers state'), /member-2 127.0.0.1 0 0 /)
    t.strictSame(await answers(4), { 'member-1': 4 })
    const members = traffic.received.slice(from).flatMap(message => (message.kind === 'report' ? message.pools : []))
    t.ok(members.every(pool => pool.members[1] === 'DOWN'))
  })

  await t.test('it is up again once it answers', async t => {
    await traffic.ask('member', { port: 9002, name: 'member-2' })
    await until(() => (stateOf(1) === 'UP' ? true : null))
    t.strictSame(await answers(4), { 'member-1': 2, 'member-2': 2 })
  })
})

t.test('malformed requests are answered or cut off, and affect no other connection', async t => {
  t.match(await agent.send({ verb: 'dance' }), { ok: false, error: { code: 'malformed' } })
  t.match(await agent.send({ verb: 'logs', lines: 1e9 }), { ok: false, error: { code: 'malformed', details: /lines/ } })
  const { generation: _, ...incomplete } = next()
  t.match(await agent.send({ verb: 'apply', desired: incomplete }), {
    ok: false,
    error: { code: 'malformed', details: /desired.generation/ },
  })

  const noise = await amphora.connect()
  noise.socket.write(Buffer.concat([Buffer.from([0, 0, 0, 3]), Buffer.from('{{{')]))
  await t.rejects(noise.lost)
  const flood = await amphora.connect()
  const head = Buffer.alloc(4)
  head.writeUInt32BE(MAX_FRAME + 1)
  flood.socket.write(head)
  await t.rejects(flood.lost)

  const slow = await amphora.connect()
  const frame = encodeFrame({ id: 7, verb: 'hello' })
  for (const byte of frame) slow.socket.write(Buffer.from([byte]))
  const answer = await new Promise<Buffer>(resolve => slow.socket.once('data', resolve))
  t.match(answer.toString(), '"id":7')
  slow.end()
  t.ok((await agent.ask('hello')).bootId)
})

t.test('concurrent requests are all answered; applies run one after another', async t => {
  const other = await amphora.connect()
  const applies = Array.from({ length: 6 }, (_, i) =>
    agent.apply(next({ servers: [server(1, { weight: 20 + i }), server(2)] })),
  )
  const hello = await other.ask('hello')
  t.ok(hello.appliedGeneration < generation, 'hello does not wait for the applies')
  const results = await Promise.all(applies)
  t.strictSame(
    results.map(result => result.appliedGeneration),
    results.map((_, i) => generation - 5 + i),
  )
  t.match(runtime('show servers state'), /member-1 127.0.0.1 2 0 25 /)
  other.end()
})

t.test('logs contain the agent’s and HAProxy’s lines', async t => {
  const { lines } = await agent.ask('logs', { lines: 5000 })
  t.ok(lines.some(line => /^agent: .*generation \d+ applied in \d+ ms: start/.test(line)))
  t.ok(lines.some(line => /^haproxy: .*member-2 is DOWN/.test(line)))
  t.equal((await agent.ask('logs', { lines: 3 })).lines.length, 3)
})

t.test('HAProxy stops when there is nothing to serve, and starts again when there is', async t => {
  t.match(await agent.apply(next({ changes: { haproxy: null } })), { transition: 'stop' })
  await t.rejects(traffic.get(URL))
  await until(async () => ((await agent.ask('status')).haproxy.running ? null : true))
  t.match(await agent.apply(next({ changes: { haproxy: null } })), { transition: 'unchanged' })
  await until(() => (amphora.readFile('/run/krater/haproxy.track') === '0\n' ? true : null))
  t.match(await agent.apply(next()), { transition: 'start' })
  t.equal((await traffic.get(URL)).status, 200)
})
