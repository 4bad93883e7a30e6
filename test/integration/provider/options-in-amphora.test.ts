import t from 'tap'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { HAPROXY_SOCKET } from '../../../amphora-agent/protocol/paths.js'
import type { ListenerNode, PoolNode, SessionPersistence } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { aListener, aMember, aMonitor, aPool, aTree, someFacts, uuid } from '../../golden/models.js'
import { createAmphora, until } from '../../support/worlds/amphora.js'

const amphora = await createAmphora()
t.teardown(amphora.destroy)
for (const [port, name] of [
  [9001, 'one'],
  [9002, 'two'],
  [9003, 'three'],
] as const) {
  await amphora.traffic.ask('member', { port, name })
}
// a link to nowhere: its own address answers pings, others never do, and nothing refuses a connection
for (const line of ['add silent type veth peer name hole', 'set silent up', 'set hole up'])
  amphora.inside('ip', 'link', ...line.split(' '))
amphora.inside('ip', 'addr', 'add', '10.98.0.1/24', 'dev', 'silent')
amphora.inside('ip', 'addr', 'add', 'fd98::1/64', 'dev', 'silent', 'nodad')
amphora.inside('ip', 'neigh', 'add', '10.98.0.9', 'lladdr', '02:00:00:00:00:09', 'dev', 'silent')

const agent = await amphora.connect()
let generation = 0

/** The rendered state of a load balancer on the loopback address; another test covers the interfaces. */
function desire(listeners: ListenerNode[], pools: PoolNode[]): Desired {
  const tree = aTree({ listeners, pools, generation: ++generation })
  const placed = { ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }
  return { ...renderDesired(placed, someFacts({ fence: generation })), interfaces: [] }
}

const local = (number: number, change: Parameters<typeof aMember>[1] = {}) =>
  aMember(number, { address: '127.0.0.1', protocolPort: 9000 + number, ...change })
const get = (listener: number, headers?: Record<string, string>) =>
  amphora.traffic.get(`http://127.0.0.1:${8000 + listener}/`, undefined, headers)
const persistence = (type: SessionPersistence['type'], cookieName: string | null = null): SessionPersistence => ({
  type,
  cookieName,
  persistenceTimeout: null,
  persistenceGranularity: null,
})
const http = (number: number, change: Partial<ListenerNode> = {}) =>
  aListener(number, { defaultPoolId: uuid(3, number), ...change })
const several = async (count: number, ask: () => Promise<{ status: number; body: string }>) => {
  const bodies: string[] = []
  for (let index = 0; index < count; index++) bodies.push((await ask()).body)
  return [...new Set(bodies)].sort()
}

t.test('clients return to their member after a reload', async t => {
  const pools = [
    aPool(1, { sessionPersistence: persistence('APP_COOKIE', 'sid'), members: [local(1), local(2), local(3)] }),
  ]
  t.match(await agent.apply(desire([http(1)], pools)), { transition: 'start' })
  const sessions: { Cookie: string; body: string }[] = []
  for (let index = 0; index < 7; index++) {
    const { body, cookies } = await amphora.traffic.get('http://127.0.0.1:8001/login')
    sessions.push({ Cookie: cookies[0]?.split(';')[0] ?? '', body })
  }
  t.equal(new Set(sessions.map(({ body }) => body)).size, 3)
  // in its first five seconds HAProxy waits for another worker's table and sends none
  const show = () => amphora.inside('bash', '-c', `echo show peers | socat - ${HAPROXY_SOCKET}`)
  await until(() => ((Number(/ flags=(0x[0-9a-f]+)/.exec(show())?.[1]) & 3) === 3 ? true : null))
  for (const timeoutClientData of [40_000, 50_000]) {
    t.match(await agent.apply(desire([http(1, { timeoutClientData })], pools)), { transition: 'reload' })
    // the old worker hands over its table just after the new one starts
    const back = async () => {
      const answers = await Promise.all(sessions.map(({ Cookie }) => get(1, { Cookie })))
      return answers.every(({ body }, index) => body === sessions[index]?.body) ? true : null
    }
    await until(back, 5_000)
    t.ok(await back())
  }
})

t.test('a member that joins an HTTP_COOKIE pool gets its own cookie', async t => {
  const pool = (members: ReturnType<typeof local>[]) => [
    aPool(1, { sessionPersistence: persistence('HTTP_COOKIE'), members }),
  ]
  await agent.apply(desire([http(1)], pool([local(1)])))
  t.match(await agent.apply(desire([http(1)], pool([local(1), local(2)]))), { transition: 'reload' })
  const cookies = new Map<string, string>()
  for (let index = 0; index < 4; index++) {
    const { body, cookies: set } = await get(1)
    cookies.set(body, set[0]?.split(';')[0] ?? '')
  }
  t.same([...cookies.keys()].sort(), ['one', 'two'])
  t.equal(new Set(cookies.values()).size, 2)
  for (const [name, Cookie] of cookies) t.same(await several(3, () => get(1, { Cookie })), [name])
  const drained = pool([local(1, { weight: 0 }), local(2)])
  t.match(await agent.apply(desire([http(1)], drained)), { transition: 'runtime' })
  t.same(await several(3, () => get(1)), ['two'], 'a draining member gets no new clients')
  t.same(
    await several(3, () => get(1, { Cookie: cookies.get('one') ?? '' })),
    ['one'],
    'a draining member keeps its clients',
  )
})

t.test('the agent pings the members of a PING monitor', async t => {
  const pool = (number: number, pinged: readonly (readonly [member: number, address: string])[]) =>
    aPool(number, {
      healthMonitor: aMonitor(number, { type: 'PING', delay: 1, timeout: 1, maxRetries: 1, maxRetriesDown: 2 }),
      members: pinged.map(([member, monitorAddress]) => local(member, { monitorAddress })),
    })
  const first = [
    pool(1, [
      [1, '10.98.0.1'],
      [2, '10.98.0.9'],
    ]),
    pool(2, [
      [1, 'fd98::1'],
      [2, 'fd98::9'],
    ]),
  ]
  const listeners = [http(1), http(2)]
  await agent.apply(desire(listeners, first))
  const served = async (...expected: string[]) => {
    const seen = async () => [await several(4, () => get(1)), await several(4, () => get(2))].map(String)
    const done = async () => ((await seen()).every(names => names === expected.join()) ? true : null)
    await until(done, 15_000).catch(() => null)
    t.same(await seen(), [expected.join(), expected.join()])
  }
  await served('one')
  const states = () =>
    amphora.traffic.reports().findLast(({ pools }) => pools.some(({ members }) => members.length === 2))?.pools[0]
      ?.members
  await until(() => (states()?.join() === 'UP,DOWN' ? true : null))

  await t.test('a member that is down stays down after a reload, and is up once it answers', async () => {
    const changed = listeners.map(listener => ({ ...listener, timeoutClientData: 40_000 }))
    t.match(await agent.apply(desire(changed, first)), { transition: 'reload' })
    t.same(await several(4, () => get(1)), ['one'], 'the member stays down after the reload')
    amphora.inside('ip', 'addr', 'add', '10.98.0.9/24', 'dev', 'silent')
    amphora.inside('ip', 'addr', 'add', 'fd98::9/64', 'dev', 'silent', 'nodad')
    await served('one', 'two')
  })

  await t.test('a member that joins at runtime is pinged', async () => {
    const changed = listeners.map(listener => ({ ...listener, timeoutClientData: 40_000 }))
    const more = [
      pool(1, [
        [1, '10.98.0.1'],
        [2, '10.98.0.9'],
        [3, '10.98.0.1'],
      ]),
      pool(2, [
        [1, 'fd98::1'],
        [2, 'fd98::9'],
        [3, 'fd98::1'],
      ]),
    ]
    t.match(await agent.apply(desire(changed, more)), { transition: 'runtime' })
    await served('one', 'three', 'two')
  })

  await t.test('a restarted agent still pings', async () => {
    await amphora.killAgent()
    amphora.inside('ip', 'addr', 'del', '10.98.0.9/24', 'dev', 'silent')
    amphora.inside('ip', 'addr', 'del', 'fd98::9/64', 'dev', 'silent')
    await served('one', 'three')
  })
})

t.test('an unreachable member costs no more than timeout_member_connect', async t => {
  const again = await amphora.connect()
  const nowhere = aPool(1, { members: [aMember(1, { address: '10.98.0.9' })] })
  const started = performance.now()
  await again.apply(desire([http(1, { timeoutMemberConnect: 100 })], [nowhere]))
  t.match(await get(1), { status: 503 })
  t.ok(performance.now() - started < 6_000)
  await again.apply(desire([http(1)], [nowhere]))
  await t.rejects(get(1), /timeout/, 'the default timeout waits longer')
})

t.test('HAProxy finds what it reads for members that speak TLS, in a reload and at runtime', async t => {
  const again = await amphora.connect()
  const ref = (number: number) => `https://keys.example/v1/secrets/${uuid(8, number)}`
  const pool = (...members: number[]) =>
    aPool(1, {
      tlsEnabled: true,
      tlsContainerRef: ref(1),
      caTlsContainerRef: ref(2),
      crlContainerRef: ref(3),
      tlsVersions: ['TLSv1.2', 'TLSv1.3'],
      alpnProtocols: ['h2', 'http/1.1'],
      healthMonitor: aMonitor(1, { type: 'HTTPS', domainName: 'a.example' }),
      members: members.map(number => local(number, { name: `web-${number}.example` })),
    })
  for (const timeoutClientData of [8_000, 9_000]) {
    const listeners = [http(1, { timeoutClientData })]
    t.match(await again.apply(desire(listeners, [pool(1)])), { transition: 'reload' })
    t.match(await again.apply(desire(listeners, [pool(1, 2)])), { transition: 'runtime' })
  }
})
