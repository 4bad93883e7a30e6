import pg from 'pg'
import t from 'tap'
import { WAKE_CHANNEL } from '../../../controller/load-balancer/change/wake-channel.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import { idIn } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'
import { makeTree } from '../../support/inputs/load-balancer-tree.js'

t.test('the worker reads the whole tree in one statement', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const tree = await makeTree(api)
  await api.ask('DELETE', `/v2/lbaas/healthmonitors/${tree.monitor}`)
  const added = await api.ask('POST', `/v2/lbaas/pools/${tree.pool}/members`, {
    member: { address: '10.0.0.2', protocol_port: 81, weight: 3, backup: true },
  })
  const statements = await api.statementsOf(() => readTree(api.database, tree.lb))
  t.equal(statements.length, 1)
  const read = () => readTree(api.database, tree.lb)
  t.match(await read(), {
    id: tree.lb,
    generation: 3,
    appliedGeneration: 1,
    change: 'update',
    topology: 'SINGLE',
    vip: { subnetId: SUBNET, ownsPort: true, address: String, portId: String },
    listeners: [
      {
        id: tree.listener,
        protocol: 'HTTP',
        protocolPort: 80,
        connectionLimit: -1,
        defaultPoolId: tree.pool,
        insertHeaders: {},
        timeoutTcpInspect: 0,
      },
    ],
    pools: [
      {
        id: tree.pool,
        lbAlgorithm: 'ROUND_ROBIN',
        deregistrationDelay: 30,
        healthMonitor: { id: tree.monitor, change: 'delete' },
        members: [
          { id: tree.member, serverNumber: 1, address: '10.0.0.1', change: 'create' },
          { id: idIn(added, 'member'), serverNumber: 2, weight: 3, backup: true, change: 'create', subnetId: null },
        ],
      },
    ],
  })
  const monitor = await api.ask('POST', '/v2/lbaas/healthmonitors', {
    healthmonitor: {
      pool_id: tree.pool,
      type: 'HTTP',
      delay: 1,
      timeout: 1,
      max_retries: 1,
      http_version: 1.1,
      domain_name: 'a.b',
    },
  })
  t.match(
    await read(),
    {
      pools: [
        {
          healthMonitor: { id: idIn(monitor, 'healthmonitor'), httpVersion: 1.1, domainName: 'a.b', maxRetriesDown: 1 },
        },
      ],
    },
    'only the monitor that is not being deleted is read',
  )
  await api.ask('DELETE', `/v2/lbaas/pools/${tree.pool}/members/${idIn(added, 'member')}`)
  await api.apply(tree.lb)
  const again = await api.ask('POST', `/v2/lbaas/pools/${tree.pool}/members`, {
    member: { address: '10.0.0.2', protocol_port: 81 },
  })
  t.match(
    await read(),
    { pools: [{ members: [{}, { id: idIn(again, 'member'), serverNumber: 3 }] }] },
    'a server number is never reused',
  )
  t.equal(await readTree(api.database, 'ffffffff-ffff-4fff-8fff-ffffffffffff'), null)
})

t.test('every committed change wakes the workers; a refused one does not', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const listening = new pg.Client({ connectionString: api.databaseUrl })
  await listening.connect()
  t.teardown(() => listening.end())
  const heard: string[] = []
  listening.on('notification', ({ payload }) => heard.push(payload ?? ''))
  await listening.query(`LISTEN ${WAKE_CHANNEL}`)
  const tree = await makeTree(api)
  await api.ask('PUT', `/v2/lbaas/pools/${tree.pool}/members/${tree.member}`, { member: { weight: 5 } })
  await api.ask('POST', '/v2/lbaas/listeners', {
    listener: { loadbalancer_id: tree.lb, protocol: 'TCP', protocol_port: 80 },
  })
  await api.ask('DELETE', `/v2/lbaas/loadbalancers/${tree.lb}`)
  await api.ask('DELETE', `/v2/lbaas/loadbalancers/${tree.lb}?cascade=true`)
  await listening.query('SELECT 1')
  t.same(heard, [tree.lb, tree.lb, tree.lb])
})

t.test('statements per request, transaction included', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const tree = await makeTree(api)
  const members = (count: number, weight: number) =>
    Array.from({ length: count }, (_, index) => ({
      address: `10.1.${index >> 8}.${index & 255}`,
      protocol_port: 80,
      weight,
    }))
  const requests: [string, number, string, string, object | undefined][] = [
    ['create load balancer', 4, 'POST', 'loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET } }],
    ['show load balancer', 1, 'GET', `loadbalancers/${tree.lb}`, undefined],
    ['list load balancers', 1, 'GET', 'loadbalancers?name=tree&limit=10', undefined],
    ['status tree', 1, 'GET', `loadbalancers/${tree.lb}/status`, undefined],
    ['statistics', 1, 'GET', `loadbalancers/${tree.lb}/stats`, undefined],
    [
      'create listener',
      7,
      'POST',
      'listeners',
      { listener: { loadbalancer_id: tree.lb, protocol: 'TCP', protocol_port: 5 } },
    ],
    ['list members', 1, 'GET', `pools/${tree.pool}/members`, undefined],
    ['update member', 7, 'PUT', `pools/${tree.pool}/members/${tree.member}`, { member: { weight: 9 } }],
    ['batch of 50 new members', 10, 'PUT', `pools/${tree.pool}/members`, { members: members(50, 1) }],
    ['batch of 50 known members', 7, 'PUT', `pools/${tree.pool}/members`, { members: members(50, 2) }],
    ['batch of 500 members, some known', 12, 'PUT', `pools/${tree.pool}/members`, { members: members(500, 3) }],
  ]
  for (const [name, most, method, path, body] of requests) {
    const statements = await api.statementsOf(async () => {
      const reply = await api.ask(method, `/v2/lbaas/${path}`, body)
      t.ok(reply.status < 300, `${name}: ${reply.text.slice(0, 200)}`)
    })
    t.ok(
      statements.length >= 1 && statements.length <= most,
      `${name} takes ${statements.length} statements, ${most} are allowed`,
    )
  }
})

t.test('concurrent changes', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const tree = await makeTree(api)
  const tally = (replies: { status: number }[]) => {
    const counts: Record<number, number> = {}
    for (const { status } of replies) counts[status] = (counts[status] ?? 0) + 1
    return counts
  }
  const together = (count: number, ask: (index: number) => Promise<{ status: number }>) =>
    Promise.all(Array.from({ length: count }, (_, index) => ask(index)))
  await t.test('exactly one of many concurrent requests gets the same port, member or monitor', async t => {
    t.same(
      tally(
        await together(10, () =>
          api.ask('POST', '/v2/lbaas/listeners', {
            listener: { loadbalancer_id: tree.lb, protocol: 'TCP', protocol_port: 99 },
          }),
        ),
      ),
      { 201: 1, 409: 9 },
    )
    t.same(
      tally(
        await together(10, () =>
          api.ask('POST', `/v2/lbaas/pools/${tree.pool}/members`, {
            member: { address: '10.0.0.9', protocol_port: 9 },
          }),
        ),
      ),
      { 201: 1, 409: 9 },
    )
    const pool = await api.ask('POST', '/v2/lbaas/pools', {
      pool: { loadbalancer_id: tree.lb, protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' },
    })
    t.same(
      tally(
        await together(10, () =>
          api.ask('POST', '/v2/lbaas/healthmonitors', {
            healthmonitor: { pool_id: idIn(pool, 'pool'), type: 'TCP', delay: 1, timeout: 1, max_retries: 1 },
          }),
        ),
      ),
      { 201: 1, 409: 9 },
    )
    const listener = await api.ask('POST', '/v2/lbaas/listeners', {
      listener: { loadbalancer_id: tree.lb, protocol: 'TCP', protocol_port: 98 },
    })
    t.same(
      tally(
        await together(10, () =>
          api.ask('POST', '/v2/lbaas/pools', {
            pool: { listener_id: idIn(listener, 'listener'), protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' },
          }),
        ),
      ),
      { 201: 1, 409: 9 },
    )
  })
  await t.test('concurrent creates all succeed, each with its own generation and server number', async t => {
    const before = (await api.database('load_balancer').where({ id: tree.lb }).first()).generation
    t.same(
      tally(
        await together(20, index =>
          api.ask('POST', `/v2/lbaas/pools/${tree.pool}/members`, {
            member: { address: `10.2.0.${index}`, protocol_port: 80 },
          }),
        ),
      ),
      { 201: 20 },
    )
    t.equal((await api.database('load_balancer').where({ id: tree.lb }).first()).generation, before + 20)
    const numbers = await api.database('member').where({ pool_id: tree.pool }).pluck('server_number')
    t.equal(new Set(numbers).size, numbers.length)
  })
  await t.test('an update is checked against the state that the previous update left', async t => {
    const monitor = `/v2/lbaas/healthmonitors/${tree.monitor}`
    t.equal((await api.ask('PUT', monitor, { healthmonitor: { http_version: 1.1 } })).status, 200)
    // Neither sees the other's change: one waits for the load balancer's row, the other for its turn.
    const holder = await api.database.transaction()
    await holder('load_balancer').where({ id: tree.lb }).forUpdate().first()
    const waiting = Promise.all([
      api.ask('PUT', monitor, { healthmonitor: { domain_name: 'a.example' } }),
      api.ask('PUT', monitor, { healthmonitor: { http_version: null } }),
    ])
    await untilOneWaits(api)
    await holder.commit()
    t.same(tally(await waiting), { 200: 1, 400: 1 })
    const { http_version, domain_name } = await api.database('health_monitor').where({ id: tree.monitor }).first()
    t.notOk(domain_name !== null && http_version === null, 'a domain name implies an HTTP version')
  })
  await t.test('changes waiting for one load balancer do not delay another', async t => {
    const other = await makeTree(api)
    const holder = await api.database.transaction()
    await holder('load_balancer').where({ id: tree.lb }).forUpdate().first()
    let answered = 0
    const waiting = together(40, async index => {
      const reply = await api.ask('PUT', `/v2/lbaas/loadbalancers/${tree.lb}`, { loadbalancer: { name: `${index}` } })
      answered += 1
      return reply
    })
    await untilOneWaits(api)
    t.equal((await api.ask('GET', `/v2/lbaas/loadbalancers/${other.lb}`)).status, 200)
    const renamed = await api.ask('PUT', `/v2/lbaas/pools/${other.pool}`, { pool: { name: 'renamed' } })
    t.equal(renamed.status, 200)
    t.equal(answered, 0, 'all forty still wait')
    await holder.commit()
    t.same(tally(await waiting), { 200: 40 })
  })
  await t.test('a child created during a deletion either stops the deletion or is refused', async t => {
    for (let round = 0; round < 5; round++) {
      const created = await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET } })
      const lb = idIn(created, 'loadbalancer')
      const [removed, listener] = await Promise.all([
        api.ask('DELETE', `/v2/lbaas/loadbalancers/${lb}`),
        api.ask('POST', '/v2/lbaas/listeners', {
          listener: { loadbalancer_id: lb, protocol: 'TCP', protocol_port: 1 },
        }),
      ])
      t.ok(
        [204, 409].join() === [removed.status, listener.status].join() ||
          [400, 201].join() === [removed.status, listener.status].join(),
        `${removed.status} ${listener.status}`,
      )
    }
  })
})

/** Waits until a statement is blocked on a row lock. */
async function untilOneWaits(api: TestApi): Promise<void> {
  for (let looks = 0; looks < 5000; looks++) {
    const { rows } = await api.database.raw(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    )
    if (rows.length > 0) return
  }
  throw new Error('No statement waited for a row lock.')
}
