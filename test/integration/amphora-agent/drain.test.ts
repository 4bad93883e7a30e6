import t from 'tap'
import { createAmphora, until } from '../../support/worlds/amphora.js'
import { BACKEND, desire, server } from '../../support/worlds/amphora-desired.js'

const URL = 'http://127.0.0.1:8080/'

const amphora = await createAmphora()
t.teardown(amphora.destroy)
const { traffic } = amphora
let agent = await amphora.connect()
for (const number of [1, 2]) await traffic.ask('member', { port: 9000 + number, name: `member-${number}` })

type Wish = Partial<Parameters<typeof desire>[0]>
let generation = 0
const apply = (wish: Wish = {}) =>
  agent.apply(desire({ servers: [server(1), server(2)], ...wish, generation: ++generation }))
const runtime = (command: string) =>
  amphora.inside('bash', '-c', `echo '${command}' | socat -t5 - UNIX:/run/krater/haproxy.sock`)
const isGone = () => !runtime('show servers state').includes('member-2') || null
const isReported = (text: string) =>
  traffic.reports().some(report => report.repairs.some(repair => repair.kind === 'closed' && repair.text === text)) ||
  null
const workers = async () => (await agent.ask('status')).haproxy.workers

/** Starts an answer from member-2 and keeps it open; then the desired members serve again. */
async function hold(name: string, wish: Wish = {}): Promise<void> {
  await apply({ ...wish, servers: [server(2)] })
  await until(async () => ((await traffic.get(URL)).body === 'member-2' ? true : null))
  t.equal(await traffic.ask('hold', { url: URL, name }), 'member-2')
  await apply(wish)
}
const end = async (name: string) => {
  await traffic.ask('release')
  return traffic.ask('held', { name })
}

for (const [what, servers] of [
  ['removed', [server(1)]],
  ['disabled', [server(1), server(2, { disabled: true })]],
] as const) {
  t.test(`a ${what} member finishes its open requests`, async t => {
    await hold(what)
    t.match(await apply({ servers: [...servers] }), { transition: 'runtime' })
    for (let i = 0; i < 4; i++) t.equal((await traffic.get(URL)).body, 'member-1')
    t.equal(await end(what), 'complete')
    if (what === 'removed') await until(isGone)
  })

  t.test(`a ${what} member’s connections are cut after its delay, even in an old worker`, async t => {
    for (const how of ['runtime', 'reload']) {
      const name = `${what} ${how}`
      await hold(name, { deregistrationDelay: 1 })
      const frontend = how === 'reload' ? [`http-response set-header X-${what} 1`] : []
      t.match(await apply({ servers: [...servers], frontend, deregistrationDelay: 1 }), { transition: how })
      t.equal(await traffic.ask('held', { name }), 'cut')
      await until(() => isReported('1 connections of member member-2, 1 s after it left'))
    }
  })
}

t.test('a removed member finishes its open requests', async t => {
  await t.test('when the agent dies', async t => {
    await hold('agent')
    await apply({ servers: [server(1)] })
    await amphora.killAgent()
    agent = await amphora.connect()
    await agent.ask('hello')
    t.match(runtime('show servers state'), /member-2/)
    t.equal(await end('agent'), 'complete')
    await until(isGone)
  })

  await t.test('when HAProxy reloads repeatedly', async t => {
    await hold('reload')
    await apply({ servers: [server(1)] })
    for (const round of [1, 2])
      await apply({ servers: [server(1)], frontend: [`http-response set-header X-R ${round}`] })
    t.ok(isGone(), 'the new worker no longer has the member')
    t.equal(await end('reload'), 'complete')
    await until(async () => ((await workers()) === 1 ? true : null))
  })

  await t.test('when the member comes back', async t => {
    await hold('back', { deregistrationDelay: 1 })
    await apply({ servers: [server(1)], deregistrationDelay: 1 })
    t.match(await apply({ servers: [server(1), server(2, { weight: 30 })] }), { transition: 'runtime' })
    t.match(runtime('show servers state'), new RegExp(`${BACKEND} 2 member-2 \\S+ 2 0 30 `))
    t.equal(amphora.readFile('/run/krater/leaving.json'), '[]')
    t.equal(await end('back'), 'complete')
  })

  await t.test('when nothing is left to serve; then HAProxy stops', async t => {
    await hold('stop')
    t.match(await apply({ changes: { haproxy: null } }), { transition: 'stop' })
    await t.rejects(traffic.get(URL))
    t.equal(await end('stop'), 'complete')
    await until(async () => ((await agent.ask('status')).haproxy.running ? null : true))
  })
})

t.test('reloads cut no connection until there are too many old workers; then the oldest is cut', async t => {
  const changes = { oldWorkers: { most: 2, memoryMib: 512 } }
  await apply({ changes })
  await until(async () => ((await workers()) === 1 ? true : null))
  const reload = (round: number) => apply({ changes, frontend: [`http-response set-header X-Old ${round}`] })
  for (const round of [1, 2, 3]) {
    await traffic.ask('hold', { url: URL, name: `old ${round}` })
    t.match(await reload(round), { transition: 'reload' })
  }
  t.equal(await traffic.ask('held', { name: 'old 1' }), 'cut')
  await until(() => isReported('1 connections of an old HAProxy worker: more than 2 old workers'))
  t.equal(await workers(), 3)
  for (const round of [2, 3]) t.equal(await end(`old ${round}`), 'complete')
  await until(async () => ((await workers()) === 1 ? true : null))
})

t.test('a deregistration delay of 0 cuts connections at once', async t => {
  await hold('none', { deregistrationDelay: 0 })
  await apply({ servers: [server(1)], deregistrationDelay: 0 })
  t.equal(await traffic.ask('held', { name: 'none' }), 'cut')
  await until(isGone)
})

t.test('a member that is down gets no traffic until its next check, even when', async t => {
  const stateOf2 = () => /member-2 \S+ (\d) (\d) /.exec(runtime('show servers state'))?.[1]
  const monitored = (fall: string) => {
    const options = ['check', 'inter', '600s', 'fall', fall, 'rise', '2']
    return [server(1, { options }), server(2, { options })]
  }
  await apply()
  await traffic.ask('endMember', { port: 9002 })
  await until(() => (stateOf2() === '0' ? true : null))

  await t.test('its monitor changes', async t => {
    t.match(await apply({ servers: monitored('3') }), { transition: 'reload' })
    t.equal(stateOf2(), '0')
  })
  await t.test('HAProxy dies', async t => {
    const { pid } = (await agent.ask('status')).haproxy
    await until(() => (amphora.readFile('/run/krater/known-down.json').includes('9002') ? true : null))
    amphora.inside('kill', '-9', String(pid))
    await until(async () => {
      const status = await agent.ask('status')
      return status.haproxy.pid !== pid && status.haproxy.workers === 1 ? true : null
    })
    t.equal(await until(() => stateOf2() ?? null), '0')
  })
  await t.test('another amphora takes its place', async t => {
    const successor = await createAmphora()
    t.teardown(successor.destroy)
    const other = await successor.connect()
    const servers = monitored('3')
    await other.apply(desire({ generation: 1, servers, changes: { downMembers: ['member-2'] } }))
    const text = successor.inside('bash', '-c', 'echo "show servers state" | socat -t5 - UNIX:/run/krater/haproxy.sock')
    t.match(text, /member-2 \S+ 0 0 /)
    other.end()
  })
})
