import { once } from 'node:events'
import { createConnection } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t, { type Test } from 'tap'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'
import { makeWorld, OFFERED } from '../../support/worlds/load-balancer-world.js'

/** A project's default quota. */
const MEMBERS = 5000

/** Members with what clients set, and the longest names. */
const members = Array.from({ length: MEMBERS }, (_, index) => ({
  name: `member-${index}-`.padEnd(255, 'x'),
  address: `10.0.${index >> 8}.${index & 255}`,
  protocol_port: 80,
  weight: 7,
  subnet_id: SUBNET,
  backup: false,
  admin_state_up: true,
  monitor_address: null,
  monitor_port: 8080,
  tags: ['blue', 'green', `rack-${index}`],
}))

/** Storing 5,000 members takes a second or two, and far longer while other tests need the processors. */
const PATIENCE_MS = 120_000

const POOL = { name: 'p', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }

/** Sends a request. @returns its answer, and the longest time in milliseconds for which the API answered nobody */
async function stallOf<Reply>(request: () => Promise<Reply>): Promise<{ reply: Reply; stall: number }> {
  const delay = monitorEventLoopDelay({ resolution: 5 })
  delay.enable()
  const reply = await request()
  delay.disable()
  return { reply, stall: Math.round(delay.max / 1e6) }
}

t.test('a request may have as many members as a project', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const stored = async () => Number((await api.database('member').where({ project_id: OWN }).count())[0]?.count)
  const send = async (method: string, path: string, body: object, status: number) => {
    const text = JSON.stringify(body)
    const { reply, stall } = await stallOf(() =>
      fetch(`${api.url}/v2/lbaas/${path}`, {
        method,
        body: text,
        headers: { 'X-Auth-Token': tokenOf('member'), 'Content-Type': 'application/json' },
        signal: AbortSignal.timeout(PATIENCE_MS),
      }),
    )
    await reply.arrayBuffer()
    t.equal(reply.status, status, `${method} ${path}: ${(text.length / 1e6).toFixed(1)} MB, ${stall} ms at a time`)
    t.equal(await stored(), MEMBERS)
  }
  await t.test('in a batch, again and again', async () => {
    const world = await makeWorld(api)
    await api.database('member').where({ pool_id: world.pool }).delete()
    const path = `pools/${world.pool}/members`
    await send('PUT', path, { members }, 202)
    await send('PUT', path, { members: members.map(member => ({ ...member, weight: 1 })) }, 202)
    await api.database('member').delete()
  })
  await t.test('in a pool, a listener or a load balancer', async () => {
    const { lb } = await makeWorld(api, FOREIGN)
    await api.database('load_balancer').where({ id: lb }).update({ project_id: OWN })
    await api.database('member').delete()
    await send('POST', 'pools', { pool: { ...POOL, loadbalancer_id: lb, members } }, 201)
    await api.database('member').delete()
    const listener = { protocol: 'HTTP', protocol_port: 81, default_pool: { ...POOL, members } }
    await send('POST', 'listeners', { listener: { ...listener, loadbalancer_id: lb } }, 201)
    await api.database('member').delete()
    const tree = { provider: 'noop_driver', vip_subnet_id: SUBNET, listeners: [listener] }
    await send('POST', 'loadbalancers', { loadbalancer: tree }, 201)
  })
})

t.test('a large request of a hostile tenant costs little', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const world = await makeWorld(api)
  const path = `/v2/lbaas/pools/${world.pool}/members`
  const MEBIBYTE = 1024 * 1024
  const refusals: Record<string, [string, RegExp]> = {
    'a list of empty lists': [`[${'[],'.repeat(MEBIBYTE)}[]]`, /more than 150000 values/],
    'a list of digits': [`{"members": [${'1,'.repeat(2 * MEBIBYTE - 10)}1]}`, /more than 150000 values/],
    'as many values as allowed': [`[${'[],'.repeat(74_000)}[]]`, /members\[0\]/],
    'deep lists': [`${'['.repeat(70_000)}${']'.repeat(70_000)}`, /nested deeper/],
    'many names': [
      `[${Array.from({ length: 7000 }, (_, at) => `{${[0, 1, 2].map(key => `"${at}-${key}":0`)}}`)}]`.padEnd(200_000),
      /more than 1000 different names/,
    ],
    'names that only escapes tell apart': [
      `{${Array.from({ length: 8000 }, (_, at) => `"${at.toString(6).replaceAll(/\d/g, digit => `\\${'nrtbf/'[Number(digit)]}`)}":0`)}}`.padEnd(
        200_000,
      ),
      /more than 1000 different names/,
    ],
    escapes: [`{"members": ["${'\\u0041'.repeat(680_000)}"]}`, /members\[0\]/],
    'a long number': [`{"members": [${'9'.repeat(4_000_000)}]}`, /members\[0\]/],
    'commas in a name': [JSON.stringify({ members: [{ name: ',[{'.repeat(MEBIBYTE) }] }), /maximum character/],
  }
  for (const [what, [body, message]] of Object.entries(refusals)) {
    const { reply, stall } = await stallOf(() => api.ask('PUT', path, body))
    t.match(reply, { status: 400, body: { faultstring: message } }, `${what}: ${stall} ms at a time`)
    t.ok(reply.text.length < 10_000, 'and the answer is short')
  }
})

/** Sends a large request but for its last byte. */
function begin(t: Test, api: TestApi, path: string, project: string) {
  const { hostname, port } = new URL(api.url)
  const socket = createConnection({ host: hostname, port: Number(port) })
  t.teardown(() => socket.destroy())
  const body = '{"members": []}'.padEnd(4_000_000)
  const head = [
    `PUT ${path} HTTP/1.1`,
    'Host: x',
    `X-Auth-Token: ${tokenOf('admin', project)}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ]
  socket.write(`${head.join('\r\n')}\r\n\r\n${body.slice(0, -1)}`)
  const answer = once(socket, 'data').then(([data]) => String(data).slice(0, 12))
  return { answer, finish: () => socket.write(body.slice(-1)) }
}

t.test('large requests of a project run one at a time, and delay nobody else', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const [own, foreign] = [await makeWorld(api), await makeWorld(api, FOREIGN)]
  const path = `/v2/lbaas/pools/${own.pool}/members`
  const first = begin(t, api, path, OWN)
  t.equal((await api.ask('GET', path)).status, 200)
  const second = begin(t, api, path, OWN)
  second.finish()
  const state = { isAnswered: false }
  void second.answer.then(() => {
    state.isAnswered = true
  })
  const small = await api.ask('PUT', path, { members: [] })
  t.equal(small.status, 202, 'a small request of the same project does not wait')
  const other = begin(t, api, `/v2/lbaas/pools/${foreign.pool}/members`, FOREIGN)
  other.finish()
  t.equal(await other.answer, 'HTTP/1.1 202', 'nor does a large one of another project')
  t.equal(state.isAnswered, false, 'a second large one does')
  first.finish()
  t.equal(await first.answer, 'HTTP/1.1 202')
  t.equal(await second.answer, 'HTTP/1.1 202')
})
