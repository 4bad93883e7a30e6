import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { createAmphora, until } from '../../support/worlds/amphora.js'
import { desire, server } from '../../support/worlds/amphora-desired.js'

const URL = 'http://127.0.0.1:8080/'

const amphora = await createAmphora()
t.teardown(amphora.destroy)
const { traffic } = amphora
for (const number of [1, 2]) await traffic.ask('member', { port: 9000 + number, name: `member-${number}` })

let generation = 0
const next = (wish: Partial<Parameters<typeof desire>[0]> = {}) =>
  desire({ servers: [server(1), server(2)], ...wish, generation: ++generation })

const haproxyPid = async () => {
  const agent = await amphora.connect()
  const { pid } = (await agent.ask('status')).haproxy
  agent.end()
  return pid
}
const kill = (pid: number | null) => amphora.inside('kill', '-9', String(pid))
const workerPid = () => {
  const table = amphora.inside('bash', '-c', "echo 'show proc' | socat -t5 - UNIX:/run/krater/haproxy-master.sock")
  return Number(/^(\d+)\s+worker/m.exec(table)?.[1])
}
const serves = () =>
  traffic.get(URL).then(
    ({ status }) => (status === 200 ? true : null),
    () => null,
  )
const haproxies = () => amphora.inside('bash', '-c', 'grep -l ^haproxy /proc/[0-9]*/comm | wc -l').trim()
/** The newest totals of the listener in any report. */
const totals = () =>
  traffic
    .reports()
    .flatMap(report => report.listeners)
    .at(-1)?.counters

const first = next()
await (await amphora.connect()).apply(first)

t.test('agent killed -9: HAProxy keeps serving, and the next agent knows its state', async t => {
  const before = await haproxyPid()
  for (let i = 0; i < 5; i++) t.ok(await serves())
  const counted = await until(() => ((totals()?.totalConnections ?? 0) >= 5 ? totals()!.totalConnections : null))
  const { bootId } = traffic.beats().at(-1)!
  await amphora.killAgent()
  t.ok(await serves(), 'HAProxy serves without an agent')
  const agent = await amphora.connect()
  t.match(await agent.ask('hello'), { appliedGeneration: first.generation, appliedSha256: first.sha256 })
  t.equal(await haproxyPid(), before)
  t.match(await agent.apply({ ...first, fence: ++generation }), { transition: 'unchanged' })
  const beat = await until(() => traffic.beats().find(beat => beat.bootId !== bootId) ?? null)
  t.match(beat, { needsApply: false, generation: first.generation, seq: 1 })
  const report = await until(() => traffic.reports().find(report => report.bootId === beat.bootId) ?? null)
  t.ok(report.listeners[0]!.counters.totalConnections >= counted, 'the counters survive')
  t.equal(report.epoch, traffic.reports()[0]!.epoch)
  t.match((await agent.refusal({ ...first, fence: 0 })).code, 'stale-fence')
  agent.end()
})

t.test('an agent adopts the state of an older version that lacks newer fields', async t => {
  const stored = '/run/krater/config/current/desired.json'
  amphora.inside(
    'sed',
    '-i',
    's/"pair":null,//; s/"deregistrationDelay":30,//; s/"oldWorkers":{[^}]*},//; s/"downMembers":\\[],//',
    stored,
  )
  t.notMatch(amphora.readFile(stored), /"pair"|deregistrationDelay|oldWorkers|downMembers/)
  await amphora.killAgent()
  const agent = await amphora.connect()
  t.match(await agent.ask('hello'), { appliedSha256: first.sha256 })
  t.match(await agent.apply({ ...first, fence: ++generation }), { transition: 'unchanged' })
  agent.end()
})

t.test('HAProxy’s master or worker killed -9: it serves at once, and counters keep growing', async t => {
  for (const victim of ['master', 'worker']) {
    await t.test(victim, async t => {
      await until(serves)
      const before = await haproxyPid()
      const counted = await until(() => totals() ?? null)
      const died = performance.now()
      kill(victim === 'master' ? before : workerPid())
      await until(async () => ((await haproxyPid()) !== before && (await serves()) ? true : null))
      t.ok(performance.now() - died < 2_000, `${Math.round(performance.now() - died)} ms`)
      t.equal(haproxies(), '2', 'one master, one worker')
      await serves()
      await until(() => ((totals()?.totalConnections ?? 0) > counted.totalConnections ? true : null))
      await until(() => (amphora.readFile('/run/krater/haproxy.track') === '0\n' ? true : null))
    })
  }
})

t.test('HAProxy killed -9 while no agent runs', async t => {
  const before = await haproxyPid()
  await amphora.killAgent()
  kill(before)
  // An orphaned worker may still answer while the new master starts.
  await until(async () => (haproxies() === '2' && (await haproxyPid()) !== before) || null)
  t.not(await haproxyPid(), before)
  t.ok(await serves())
})

t.test('agent killed -9 during an apply: the old or the new state is complete, and the next apply works', async t => {
  for (let i = 0; i < 8; i++) {
    const desired =
      i % 3 === 0
        ? next({ servers: [server(1, { weight: 20 + i }), server(2)] })
        : next({ frontend: [`http-response set-header X-Round ${i}`] })
    const agent = await amphora.connect()
    const { appliedSha256: before } = await agent.ask('hello')
    const answer = agent.apply(desired).catch(() => null)
    await pause(i * 25)
    await amphora.killAgent()
    const answered = await answer
    agent.end()

    const successor = await amphora.connect()
    const { appliedSha256: after } = await successor.ask('hello')
    t.ok([before, desired.sha256].includes(after ?? ''), `round ${i}`)
    if (answered) t.equal(after, desired.sha256, 'an acknowledged apply remains')
    const result = await successor.apply(desired)
    t.equal(result.appliedSha256, desired.sha256)
    t.match(amphora.readFile('/run/krater/config/current/haproxy.cfg'), desired.haproxy!.text)
    t.equal(haproxies().replace(/[3-9]/, '2'), '2', 'never two masters')
    t.ok(await serves())
    successor.end()
  }
  const left = amphora
    .inside('ls', '/run/krater/config')
    .split('\n')
    .filter(name => /^\d+$/.test(name))
  t.equal(left.length, 1, 'no staged configuration remains')
})

t.test('agent killed -9 during a rollback: the next agent completes it', async t => {
  const agent = await amphora.connect()
  const confirmed = next({ frontend: ['http-request return status 251 if { path /state }'] })
  await agent.apply(confirmed)
  agent.end()
  const failed = next({ frontend: ['http-request return status 252 if { path /state }'] })
  const config = '/run/krater/config'
  const write = (path: string, text: string) =>
    amphora.inside('bash', '-c', `base64 -d <<<"$1" >"$2"`, 'write', Buffer.from(text).toString('base64'), path)
  const state = async () => (await traffic.get(`${URL}state`)).status
  // The state between the restore of the files and the restart of HAProxy.
  const master = await haproxyPid()
  amphora.freezeAgent()
  amphora.inside('mkdir', `${config}/999`)
  write(`${config}/999/haproxy.cfg`, failed.haproxy!.text)
  write(`${config}/999/desired.json`, JSON.stringify(failed))
  write(`${config}/current/haproxy.cfg`, failed.haproxy!.text)
  amphora.inside('kill', '-USR2', String(master))
  await until(async () => ((await state()) === 252 ? true : null))
  write(`${config}/current/haproxy.cfg`, confirmed.haproxy!.text)
  await amphora.killAgent()
  await until(async () => ((await state()) === 251 ? true : null))
  const successor = await amphora.connect()
  await until(() => (amphora.inside('ls', config).includes('999') ? null : true))
  t.match(await successor.ask('hello'), { appliedSha256: confirmed.sha256 })
  successor.end()
})

t.test('HAProxy killed -9 during an apply', async t => {
  for (let i = 0; i < 4; i++) {
    const desired = next({ frontend: [`http-response set-header X-Kill ${i}`] })
    const agent = await amphora.connect()
    const before = await haproxyPid()
    const answer = agent.send({ verb: 'apply', desired })
    await pause(60 + i * 25)
    kill(before)
    const { ok } = await answer
    await until(serves)
    // It is null for a moment after a crash.
    if (ok) await until(async () => (await agent.ask('hello')).appliedSha256 === desired.sha256 || null)
    t.equal((await agent.apply(desired)).appliedSha256, desired.sha256)
    agent.end()
  }
})

t.test('a HAProxy that cannot start is retried with growing pauses until it starts', async t => {
  const agent = await amphora.connect()
  amphora.inside('bash', '-c', 'printf "#!/bin/sh\\necho bogus >&2; exit 1\\n" >/run/bogus; chmod +x /run/bogus')
  amphora.inside('mount', '--bind', '/run/bogus', '/usr/sbin/haproxy')
  kill(await haproxyPid())
  await until(() => (amphora.readFile('/run/krater/haproxy.track') === '-254\n' ? true : null))
  // The agent keeps retrying, so a heartbeat may fall into an attempt.
  const beat = await until(
    () =>
      traffic.beats().findLast(({ haproxyRunning, mismatches }) => !haproxyRunning && mismatches.includes('haproxy')) ??
      null,
  )
  t.match(beat, { needsApply: true, configHash: '0'.repeat(16) }, 'heartbeats report it to the controller')
  t.match(await agent.ask('hello'), { appliedSha256: null })
  const lines = await until(async () => {
    const logged = (await agent.ask('logs', { lines: 200 })).lines
    return logged.filter(line => line.includes('bogus')).length >= 3 ? logged : null
  })
  const deaths = lines.filter(line => line.includes('HAProxy exited unexpectedly')).length
  t.ok(deaths >= 3 && deaths < 40, `${deaths} deaths, whose error output is logged`)
  amphora.inside('umount', '/usr/sbin/haproxy')
  await until(serves)
  await until(() => (traffic.beats().at(-1)?.mismatches.length === 0 ? true : null))
  agent.end()
})

t.test('agent stopped cleanly: HAProxy keeps serving', async t => {
  const before = await haproxyPid()
  amphora.stopAgent()
  await until(() => (traffic.beats().at(-1)?.seq === 1 ? true : null))
  t.equal(await haproxyPid(), before)
  t.ok(await serves())
})
