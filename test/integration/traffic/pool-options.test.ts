import { Agent } from 'node:http'
import t from 'tap'
import type {
  ListenerProtocol,
  MemberNode,
  PoolProtocol,
  SessionPersistence,
} from '../../../controller/load-balancer/tree/tree.js'
import { aListener, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, ask, converse, namesOf, serveOptions } from '../../support/clients/options-traffic.js'
import { ownPorts } from '../../support/ports.js'
import { until } from '../../support/services/haproxy.js'
import { startTellingMember } from '../../support/services/telling-member.js'

let sessions = 0
const login = () => [`Set-Cookie: sid=session-${++sessions}; Path=/`, `Set-Cookie: it's=quoted-${sessions}`]
const [a, b, c] = await Promise.all(
  ['a', 'b', 'c'].map(name =>
    startTellingMember(t, name, { headers: ({ line }) => (line.includes('/login') ? login() : []) }),
  ),
)
if (!a || !b || !c) throw new Error('there are no three members')

/** Two members, `a` and `b`, with these differences. */
const two = (first: Partial<MemberNode> = {}, second: Partial<MemberNode> = {}) => [
  aLocalMember(1, a.port, first),
  aLocalMember(2, b.port, second),
]
const persistence = (type: SessionPersistence['type'], cookieName: string | null = null): SessionPersistence => ({
  type,
  cookieName,
  persistenceTimeout: null,
  persistenceGranularity: null,
})
const count = (names: readonly string[], name: string) => names.filter(candidate => candidate === name).length
const CLIENTS = Array.from({ length: 24 }, (_, index) => `127.0.1.${index + 1}`)

t.test('every pool protocol works behind every listener protocol that allows it', async t => {
  const allowed: Partial<Record<ListenerProtocol, PoolProtocol[]>> = {
    TCP: ['TCP', 'HTTP', 'HTTPS', 'PROXY', 'PROXYV2'],
    HTTP: ['HTTP', 'PROXY', 'PROXYV2'],
    HTTPS: ['HTTPS', 'TCP', 'PROXY', 'PROXYV2'],
  }
  const pairs = Object.entries(allowed).flatMap(([protocol, pools]) =>
    pools.map(pool => [protocol as ListenerProtocol, pool] as const),
  )
  const { port } = await serveOptions(t, {
    listeners: pairs.map(([protocol], index) =>
      aListener(index + 1, { protocol, defaultPoolId: uuid(3, index + 1), insertHeaders: { 'X-Real-IP': 'true' } }),
    ),
    pools: pairs.map(([, protocol], index) => aPool(index + 1, { protocol, members: [aLocalMember(1, a.port)] })),
  })
  for (const [index, [listener, pool]] of pairs.entries()) {
    await t.test(`${pool} behind ${listener}`, async t => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      t.teardown(() => agent.destroy())
      const { told } = await ask(port(index + 1), { from: '127.0.0.9', agent })
      t.equal(told.headers?.['x-real-ip'], listener === 'HTTP' ? '127.0.0.9' : undefined)
      const version = { PROXY: 'v1', PROXYV2: 'v2' }[pool as string]
      if (version === undefined) t.equal(told.proxy, null)
      else t.match(told.proxy ?? '', new RegExp(`^${version} 127\\.0\\.0\\.9:\\d+$`))
      const other = await ask(port(index + 1), { from: '127.0.0.8' })
      if (version !== undefined) t.match(other.told.proxy ?? '', /127\.0\.0\.8/, 'each client gets its own header')
    })
  }
})

t.test('algorithms', async t => {
  const { port } = await serveOptions(t, {
    listeners: [1, 2, 3, 4, 5].map(number =>
      aListener(number, { defaultPoolId: uuid(3, number), protocol: number === 4 ? 'TCP' : 'HTTP' }),
    ),
    pools: [
      aPool(1, { members: two() }),
      aPool(2, { lbAlgorithm: 'LEAST_CONNECTIONS', members: two() }),
      aPool(3, { lbAlgorithm: 'SOURCE_IP', members: two() }),
      aPool(4, { lbAlgorithm: 'SOURCE_IP_PORT', members: two() }),
      aPool(5, { lbAlgorithm: 'SOURCE_IP_PORT', members: two() }),
    ],
  })
  const onOneConnection = () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    t.teardown(() => agent.destroy())
    return agent
  }

  await t.test('ROUND_ROBIN alternates between members', async t => {
    const names = await namesOf(port(1), 8)
    t.same([count(names, 'a'), count(names, 'b')], [4, 4])
  })
  await t.test('LEAST_CONNECTIONS avoids a busy member', async t => {
    const { port, command } = await serveOptions(t, {
      listeners: [1, 2].map(number => aListener(number, { protocol: 'TCP', defaultPoolId: uuid(3, number) })),
      pools: (['LEAST_CONNECTIONS', 'ROUND_ROBIN'] as const).map((lbAlgorithm, index) =>
        aPool(index + 1, { lbAlgorithm, members: two() }),
      ),
    })
    /** The open connections: column scur of the back end. */
    const openNow = async () => {
      const rows = (await command('show stat')).split('\n').map(row => row.split(','))
      return Number(rows.find(([proxy, server]) => proxy?.startsWith(uuid(3, 1)) && server === 'BACKEND')?.[4])
    }
    const held = await converse(t, port(1))
    const { name } = await held.say('x')
    const names: string[] = []
    for (let round = 0; round < 4; round++) {
      const passing = await converse(t, port(1))
      names.push((await passing.say('x')).name)
      passing.socket.destroy()
      await until(async () => (await openNow()) === 1, 5_000)
    }
    t.notOk(names.includes(name), `${name} is busy: ${names}`)
    t.equal(new Set(await namesOf(port(2), 4)).size, 2, 'ROUND_ROBIN would not have avoided it')
  })
  await t.test('SOURCE_IP sends an address to one member, whatever its port', async t => {
    for (const from of CLIENTS.slice(0, 4)) t.equal(new Set(await namesOf(port(3), 4, { from })).size, 1)
    const names = await namesOf(port(3), CLIENTS.length, index => ({ from: CLIENTS[index] }))
    t.equal(new Set(names).size, 2, 'addresses are spread')
  })
  await t.test('SOURCE_IP_PORT sends an address and port to one member, and spreads the ports', async t => {
    const spread = new Set<string>()
    for (const localPort of await ownPorts(12)) {
      const names = new Set<string>()
      for (let round = 0; round < 3; round++) {
        const client = await converse(t, port(4), { localAddress: '127.0.0.1', localPort })
        names.add((await client.say('x')).name)
        client.socket.resetAndDestroy()
        await client.ended
      }
      t.equal(names.size, 1)
      for (const name of names) spread.add(name)
    }
    t.equal(spread.size, 2)
    t.equal(new Set(await namesOf(port(5), 6, { agent: onOneConnection() })).size, 1, 'HTTP over one connection')
    t.equal(new Set(await namesOf(port(1), 6, { agent: onOneConnection() })).size, 2, 'ROUND_ROBIN for comparison')
    t.equal(new Set(await namesOf(port(5), 24)).size, 2, 'HTTP over separate connections')
  })
})

t.test('weights, backups, disabled members and disabled pools', async t => {
  const members: Record<number, MemberNode[]> = {
    1: two({ weight: 3 }, { weight: 1 }),
    2: two({ weight: 0 }),
    3: two({ backup: true }),
    4: two({ backup: true }, { adminStateUp: false }),
    5: two({ adminStateUp: false }),
    6: [...two({ backup: true }, { backup: true }), aLocalMember(3, c.port, { adminStateUp: false })],
    7: two(),
  }
  const numbers = Object.keys(members).map(Number)
  const { port, command } = await serveOptions(t, {
    listeners: numbers.map(number => aListener(number, { defaultPoolId: uuid(3, number) })),
    pools: numbers.map(number => aPool(number, { members: members[number] ?? [], adminStateUp: number !== 7 })),
  })
  const seen = async (number: number) => [...new Set(await namesOf(port(number), 6))].sort()
  const weighted = await namesOf(port(1), 8)
  t.same([count(weighted, 'a'), count(weighted, 'b')], [6, 2], 'three to one')
  t.same(await seen(2), ['b'], 'weight 0 gets no traffic')
  t.same(await seen(3), ['b'], 'the backup gets no traffic')
  await command(`set server ${uuid(3, 3)}:${uuid(2, 3)}/${uuid(4, 2)} state maint`)
  t.same(await seen(3), ['a'], 'the backup serves when no other member is left')
  t.same(await seen(4), ['a'])
  t.same(await seen(5), ['b'], 'a disabled member gets no traffic')
  t.same(await seen(6), ['a', 'b'], 'all backups share the traffic')
  t.same(await seen(7), ['503'], 'a disabled pool carries no traffic')
})

t.test('a member set to weight 0 keeps its open connections', async t => {
  const { port, command } = await serveOptions(t, {
    listeners: [aListener(1, { protocol: 'TCP', defaultPoolId: uuid(3, 1) })],
    pools: [aPool(1, { protocol: 'TCP', members: two() })],
  })
  const open = await converse(t, port(1))
  const { name } = await open.say('x')
  const leaving = uuid(4, name === 'a' ? 1 : 2)
  await command(`set server ${uuid(3, 1)}:${uuid(2, 1)}/${leaving} weight 0`)
  t.equal((await open.say('y')).name, name)
  t.notOk(
    (await Promise.all([1, 2, 3].map(async () => (await converse(t, port(1))).say('z')))).some(
      told => told.name === name,
    ),
  )
})

t.test('session persistence', async t => {
  const dying = await startTellingMember(t, 'dying')
  const pool = (number: number, sessionPersistence: SessionPersistence | null, members = two()) =>
    aPool(number, { sessionPersistence, members })
  const { port, command } = await serveOptions(t, {
    listeners: [
      ...[1, 2, 3, 4, 5, 6, 9].map(number => aListener(number, { defaultPoolId: uuid(3, number) })),
      ...[7, 8].map(number => aListener(number, { protocol: 'TCP', defaultPoolId: uuid(3, number) })),
    ],
    pools: [
      pool(1, persistence('HTTP_COOKIE')),
      pool(2, persistence('HTTP_COOKIE', `it's`)),
      pool(3, persistence('HTTP_COOKIE'), [aLocalMember(1, dying.port), aLocalMember(2, b.port)]),
      pool(4, persistence('APP_COOKIE', 'sid')),
      pool(5, persistence('APP_COOKIE', `it's`)),
      pool(6, persistence('SOURCE_IP')),
      pool(7, persistence('HTTP_COOKIE')),
      pool(8, persistence('APP_COOKIE', 'sid')),
      pool(9, null),
    ],
  })
  const server = (number: number, name: string) =>
    `${uuid(3, number)}:${uuid(2, number)}/${uuid(4, name === 'a' ? 1 : 2)}`
  const cookieOf = (cookies: readonly string[], name: string) =>
    cookies.map(cookie => cookie.split(';')[0] ?? '').find(cookie => cookie.startsWith(`${name}=`)) ?? ''

  t.equal(new Set(await namesOf(port(9), 4)).size, 2, 'without it, members take turns')

  await t.test('HTTP_COOKIE inserts a cookie and hides it from the member', async t => {
    const first = await ask(port(1))
    const cookie = cookieOf(first.cookies, 'SRV')
    t.match(first.cookies, [/^SRV=[0-9a-f]{16}; path=\/; HttpOnly$/])
    const answers = [1, 2, 3, 4].map(() => ask(port(1), { headers: { Cookie: `mine=1; ${cookie}` } }))
    for (const { told, cookies } of await Promise.all(answers)) {
      t.equal(told.name, first.told.name)
      t.same(cookies, [], 'the cookie is not set again')
      t.equal(told.headers?.cookie, 'mine=1', 'the member does not see the cookie')
    }
    t.equal(new Set(await namesOf(port(1), 4)).size, 2, 'clients without the cookie are balanced')
    await command(`set server ${server(1, first.told.name ?? '')} weight 0`)
    t.equal(
      (await ask(port(1), { headers: { Cookie: cookie } })).told.name,
      first.told.name,
      'even while the member drains',
    )
    const others = await namesOf(port(1), 4)
    t.notOk(others.includes(first.told.name ?? ''), 'a draining member gets no new clients')
  })

  await t.test('HTTP_COOKIE with a cookie name', async t => {
    const first = await ask(port(2))
    const cookie = cookieOf(first.cookies, `it's`)
    t.match(cookie, /^it's=[0-9a-f]{16}$/)
    t.same(new Set(await namesOf(port(2), 4, { headers: { Cookie: cookie } })), new Set([first.told.name]))
  })

  await t.test('HTTP_COOKIE of a dead member leads to another member', async t => {
    const answers = await Promise.all([ask(port(3)), ask(port(3))])
    const cookie = cookieOf(answers.find(({ told }) => told.name === 'dying')?.cookies ?? [], 'SRV')
    t.not(cookie, '')
    await dying.end()
    const after = await ask(port(3), { headers: { Cookie: cookie } })
    t.match(after, { status: 200, told: { name: 'b' } })
    t.match(after.cookies, [/^SRV=/], 'the client gets the cookie of another member')
  })

  for (const [number, name] of [
    [4, 'sid'],
    [5, `it's`],
  ] as const) {
    await t.test(`APP_COOKIE follows the application’s cookie ${name}`, async t => {
      for (let round = 0; round < 3; round++) {
        const first = await ask(port(number), { path: '/login' })
        const headers = { Cookie: cookieOf(first.cookies, name) }
        t.same(new Set(await namesOf(port(number), 4, { headers })), new Set([first.told.name]))
      }
      t.equal(new Set(await namesOf(port(number), 4, { headers: { Cookie: `${name}=unknown` } })).size, 2)
    })
  }

  await t.test('SOURCE_IP', async t => {
    const [name = ''] = await namesOf(port(6), 1)
    t.same(new Set(await namesOf(port(6), 4)), new Set([name]))
    t.equal(
      new Set(await namesOf(port(6), 8, index => ({ from: CLIENTS[index] }))).size,
      2,
      'other clients are balanced',
    )
    await command(`set server ${server(6, name)} weight 0`)
    t.same(new Set(await namesOf(port(6), 3)), new Set([name]), 'even while the member drains')
    t.notOk((await namesOf(port(6), 6, index => ({ from: `127.0.2.${index + 1}` }))).includes(name))
    await command(`set server ${server(6, name)} state maint`)
    t.notOk((await namesOf(port(6), 3)).includes(name), 'but not once the member is down')
  })

  await t.test('cookies are ignored behind a TCP listener', async t => {
    t.same((await ask(port(7))).cookies, [])
    const { cookies } = await ask(port(8), { path: '/login' })
    const headers = { Cookie: cookieOf(cookies, 'sid') }
    t.equal(new Set(await namesOf(port(8), 4, { headers })).size, 2)
  })
})

t.test('a pair shares its stick tables', async t => {
  const [first, second] = [
    { amphoraId: uuid(6, 1), address: '127.0.0.1' },
    { amphoraId: uuid(6, 2), address: '127.0.0.2' },
  ] as const
  const [peersPort = 0] = await ownPorts(1)
  const serve = (own: typeof first | typeof second, other: typeof first | typeof second) =>
    serveOptions(t, {
      peersPort,
      facts: { amphoraId: own.amphoraId, pair: { priority: 100, vrrpAddress: own.address, peers: [other] } },
      listeners: [aListener(1, { defaultPoolId: uuid(3, 1) })],
      pools: [aPool(1, { sessionPersistence: persistence('SOURCE_IP'), members: two() })],
    })
  const [one, other] = [await serve(first, second), await serve(second, first)]
  const clients = CLIENTS.slice(0, 8)
  const desired: string[] = []
  for (const from of clients) desired.push(...(await namesOf(one.port(1), 1, { from })))
  t.equal(new Set(desired).size, 2)
  const entries = async () =>
    (await other.command(`show table ${uuid(3, 1)}:${uuid(2, 1)}`)).split('server_id=').length - 1
  t.ok(await until(async () => (await entries()) === clients.length, 15_000), 'every entry arrives')
  t.same(await namesOf(other.port(1), clients.length, index => ({ from: clients[index] })), desired)
})
