import t from 'tap'
import { sql } from '../../../controller/database/sql.js'
import { inTransaction } from '../../../controller/database/transaction.js'
import { EVENT_DAYS, MAX_EVENTS, purgeRecords, STATUS_DAYS } from '../../../controller/housekeeping/purge.js'
import { actions } from '../../../controller/load-balancer/migrations/009-actions.js'
import { createLog } from '../../../controller/log/log.js'
import { type Action, type Provider, ProvisioningFault } from '../../../controller/provider/provider.js'
import { claimDue } from '../../../controller/queue/claim.js'
import { attempt } from '../../../controller/worker/attempt.js'
import { FOREIGN, tokenOf } from '../../support/clients/callers.js'
import { at, idIn, type Json } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'
import { NOWHERE } from '../../support/database/load-balancer-keys.js'

const BALANCERS = '/v2/lbaas/loadbalancers'
const PROVIDERS = { providers: ['noop_driver'] }

async function makeBalancer(api: TestApi, more: object = {}): Promise<string> {
  const body = { loadbalancer: { vip_subnet_id: SUBNET, provider: 'noop_driver', ...more } }
  return idIn(await api.ask('POST', BALANCERS, body), 'loadbalancer')
}

async function eventsOf(api: TestApi, lb: string, query = ''): Promise<Json[]> {
  const { status, body, text } = await api.ask('GET', `${BALANCERS}/${lb}/events${query}`)
  if (status !== 200) throw new Error(text)
  return body.events as Json[]
}

t.test('the event of a request records its user, its object and its changes', async t => {
  const api = await startTestApi(PROVIDERS)
  t.teardown(api.stop)
  const lb = await makeBalancer(api, { name: 'first' })
  const send = async (method: string, path: string, body?: object, token = tokenOf('member')) => {
    const reply = await api.ask(method, `/v2/lbaas/${path}`, body, token)
    t.ok(reply.status < 300, `${method} ${path}: ${reply.text}`)
    const [newest] = await eventsOf(api, lb)
    t.equal(newest?.request_id, reply.headers.get('x-openstack-request-id'))
    t.equal(newest?.kind, 'requested')
    return { event: newest ?? {}, id: String(at(Object.values(reply.body)[0], 'id')) }
  }
  t.match(await eventsOf(api, lb), [
    {
      kind: 'requested',
      action: 'create',
      object_type: 'loadbalancer',
      object_id: lb,
      changes: { name: 'first', vip_subnet_id: SUBNET },
      user_id: 'user-member',
      user_name: 'member',
      generation: 1,
      count: 1,
      updated_at: null,
      fault: null,
      amphorae: [],
    },
  ])
  await t.test('an event is recorded for every kind of object', async t => {
    const listener = await send('POST', 'listeners', {
      listener: { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 80 },
    })
    t.match(listener.event, {
      action: 'create',
      object_type: 'listener',
      object_id: listener.id,
      changes: { protocol_port: 80 },
    })
    const pool = await send('POST', 'pools', {
      pool: { loadbalancer_id: lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
    })
    t.match(pool.event, { object_type: 'pool', object_id: pool.id, generation: 3 })
    const inside = await send('POST', 'listeners', {
      listener: { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 81, default_pool_id: pool.id },
    })
    t.match(inside.event, { object_type: 'listener', object_id: inside.id })
    const member = await send('POST', `pools/${pool.id}/members`, { member: { address: '10.0.0.1', protocol_port: 1 } })
    t.match(member.event, { object_type: 'member', object_id: member.id })
    const weight = await send('PUT', `pools/${pool.id}/members/${member.id}`, { member: { weight: 7 } })
    t.match(weight.event, { action: 'update', object_type: 'member', object_id: member.id, changes: { weight: 7 } })
    const batch = await send('PUT', `pools/${pool.id}/members?additive_only=true`, {
      members: [{ address: '10.0.0.2', protocol_port: 1 }],
    })
    t.match(batch.event, {
      action: 'update members',
      object_type: 'pool',
      object_id: pool.id,
      changes: { additive_only: 'true', members: [{ address: '10.0.0.2' }] },
    })
    const monitor = await send('POST', 'healthmonitors', {
      healthmonitor: { pool_id: pool.id, type: 'TCP', delay: 5, timeout: 3, max_retries: 2 },
    })
    t.match(monitor.event, { object_type: 'healthmonitor', object_id: monitor.id })
    const policy = await send('POST', 'l7policies', { l7policy: { listener_id: listener.id, action: 'REJECT' } })
    t.match(policy.event, { object_type: 'l7policy', object_id: policy.id })
    const rule = await send('POST', `l7policies/${policy.id}/rules`, {
      rule: { type: 'PATH', compare_type: 'STARTS_WITH', value: '/x' },
    })
    t.match(rule.event, { object_type: 'rule', object_id: rule.id, changes: { value: '/x' } })
    t.match((await send('DELETE', `healthmonitors/${monitor.id}`)).event, {
      action: 'delete',
      object_type: 'healthmonitor',
    })
    t.match(
      (await send('PUT', `loadbalancers/${lb}`, { loadbalancer: { description: 'd' } }, tokenOf('admin'))).event,
      {
        action: 'update',
        object_id: lb,
        user_name: 'admin',
        user_project_id: 'a'.repeat(32),
      },
    )
    t.match(
      (await send('PUT', `loadbalancers/${lb}`, { loadbalancer: { provisioning_status: 'ACTIVE' } }, tokenOf('admin')))
        .event,
      { changes: { provisioning_status: 'ACTIVE' } },
    )
    t.match((await send('PUT', `loadbalancers/${lb}/failover`, undefined, tokenOf('admin', FOREIGN))).event, {
      action: 'failover',
      object_type: 'loadbalancer',
      user_project_id: FOREIGN,
    })
    const many = Array.from({ length: 60 }, (_, index) => ({ address: '10.0.1.1', protocol_port: index + 1 }))
    t.match((await send('PUT', `pools/${pool.id}/members`, { members: many })).event, {
      changes: { members: '60 items' },
    })
    const long = await send('PUT', `loadbalancers/${lb}`, {
      loadbalancer: { tags: ['x'.repeat(250), 'y'.repeat(250), ...'abcdefghi'.split('').map(l => l.repeat(100))] },
    })
    t.match(long.event, { changes: { tags: '11 items' } }, 'long values are shortened')
    t.match((await send('DELETE', `loadbalancers/${lb}?cascade=true`)).event, {
      action: 'delete',
      changes: { cascade: 'true' },
    })
  })
})

t.test('a refused request leaves no event; an event costs no extra statement', async t => {
  const api = await startTestApi(PROVIDERS)
  t.teardown(api.stop)
  const lb = await makeBalancer(api)
  const pool = { pool: { loadbalancer_id: lb, protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' } }
  await api.ask('POST', '/v2/lbaas/pools', { pool: { ...pool.pool, session_persistence: { type: 'NONSENSE' } } })
  await api.ask('PUT', `${BALANCERS}/${lb}`, { loadbalancer: { name: 'x' } }, tokenOf('reader'))
  await api.ask('DELETE', `${BALANCERS}/${lb}?cascade=never`)
  await api.ask('POST', '/v2/lbaas/pools', pool)
  t.equal(
    (await api.ask('DELETE', `${BALANCERS}/${lb}`)).status,
    400,
    'a load balancer with children cannot be deleted',
  )
  t.equal((await eventsOf(api, lb)).length, 2)
  const statements = await api.statementsOf(() => api.ask('PUT', `${BALANCERS}/${lb}`, { loadbalancer: { name: 'y' } }))
  t.equal(statements.filter(sql => sql.includes('load_balancer_event')).length, 1)
  t.match(
    statements.find(sql => sql.includes('load_balancer_event')),
    /UPDATE load_balancer SET/,
    'the event is part of the UPDATE that is sent anyway',
  )
})

t.test('the event list checks rights, pages, filters and sorts', async t => {
  const api = await startTestApi(PROVIDERS)
  t.teardown(api.stop)
  const lb = await makeBalancer(api)
  const other = await makeBalancer(api)
  for (const name of ['a', 'b', 'c', 'd']) await api.ask('PUT', `${BALANCERS}/${lb}`, { loadbalancer: { name } })
  const path = `${BALANCERS}/${lb}/events`
  const generations = async (query: string) => (await eventsOf(api, lb, query)).map(({ generation }) => generation)
  t.strictSame(await generations(''), [5, 4, 3, 2, 1], 'newest first')
  t.strictSame(await generations('?sort=created_at:asc'), [1, 2, 3, 4, 5])
  t.strictSame(await generations('?action=create'), [1])
  t.strictSame((await eventsOf(api, lb, '?limit=1&fields=kind'))[0], { kind: 'requested' })
  t.equal((await eventsOf(api, other)).length, 1, 'each load balancer lists only its own events')
  const walked: unknown[] = []
  let next: string | undefined = `${path}?limit=2`
  for (let pages = 0; next !== undefined && pages < 5; pages++) {
    const { body } = await api.ask('GET', next)
    walked.push(...(body.events as Json[]).map(({ generation }) => generation))
    const link = (body.events_links as Json[]).find(({ rel }) => rel === 'next')
    next = link === undefined ? undefined : String(link.href).slice(api.url.length)
  }
  t.strictSame(walked, [5, 4, 3, 2, 1])
  t.equal((await api.ask('GET', path, undefined, tokenOf('reader'))).status, 200)
  t.equal((await api.ask('GET', path, undefined, tokenOf('admin', FOREIGN))).status, 200)
  t.equal((await api.ask('GET', path, undefined, tokenOf('reader', FOREIGN))).status, 403)
  t.equal((await api.ask('GET', `${BALANCERS}/${NOWHERE}/events`)).status, 404)
  t.equal((await api.ask('GET', `${path}?bogus=1`)).status, 400)
  t.equal((await api.ask('GET', `${path}?marker=${NOWHERE}`)).status, 400)
})

t.test('the worker records what each amphora applied, how, and what failed', async t => {
  const api = await startTestApi(PROVIDERS)
  t.teardown(api.stop)
  const amphora = crypto.randomUUID()
  const runtime: Action = { amphora_id: amphora, action: 'configured', how: 'runtime' }
  const reload: Action = { amphora_id: amphora, action: 'configured', how: 'reload', reason: 'a listener was added' }
  let behave: Provider['converge'] = async () => undefined
  const provider: Provider = { name: 'noop_driver', description: '', converge: (...given) => behave(...given) }
  const context = {
    database: api.database,
    providers: new Map([[provider.name, provider]]),
    log: createLog('test', 'silent'),
  }
  const lb = await makeBalancer(api)
  const work = async (converge: Provider['converge']) => {
    behave = converge
    const request = { table: 'load_balancer', due: sql`true`, order: sql`t.id`, owner: 'test', limit: 1 }
    const [claim] = await claimDue(api.database, request)
    if (claim === undefined) throw new Error('Nothing was claimed')
    return attempt(context, claim, new AbortController().signal)
  }
  const change = () => api.ask('PUT', `${BALANCERS}/${lb}`, { loadbalancer: { name: crypto.randomUUID() } })

  await work(async (_claim, _tree, _signal, note) => {
    note?.({ amphora_id: amphora, action: 'created' })
    note?.(reload)
  })
  const [applied, ...before] = await eventsOf(api, lb)
  t.match(applied, {
    kind: 'applied',
    generation: 1,
    milliseconds: Number,
    amphorae: [{ action: 'created' }, reload],
    fault: null,
    action: null,
  })
  t.equal(before.length, 1)

  await work(async () => undefined)
  t.equal((await eventsOf(api, lb)).length, 2, 'a pass that changes nothing records no event')
  await work(async (_claim, _tree, _signal, note) => note?.({ amphora_id: amphora, action: 'restarted' }))
  t.match(
    (await eventsOf(api, lb))[0],
    { kind: 'applied', generation: 1, amphorae: [{ action: 'restarted' }] },
    'a repair records an event',
  )

  await change()
  const refuse = async () => {
    throw new ProvisioningFault('configuration-refused', 'HAProxy says no.')
  }
  for (let count = 0; count < 3; count++) t.match(await work(refuse), { kind: 'failed' })
  const [failed, asked] = await eventsOf(api, lb)
  t.match(failed, {
    kind: 'failed',
    generation: 2,
    count: 3,
    updated_at: String,
    fault: { code: 'configuration-refused', text: 'HAProxy says no.' },
  })
  t.match(asked, { kind: 'requested', generation: 2 }, 'equal failures share one event')
  await work(async (_claim, _tree, _signal, note) => {
    note?.(runtime)
    throw new Error('a secret of the operator')
  })
  const [internal] = await eventsOf(api, lb)
  t.match(
    internal,
    { kind: 'failed', count: 1, fault: { code: 'internal' }, amphorae: [runtime] },
    'a different failure gets its own event',
  )
  t.notMatch(JSON.stringify(internal), /machine room/)
  await work(refuse)
  t.match((await eventsOf(api, lb))[0], { count: 1, fault: { code: 'configuration-refused' } })
  await work(async (_claim, _tree, _signal, note) => note?.(runtime))
  t.match((await eventsOf(api, lb))[0], { kind: 'applied', generation: 2, amphorae: [runtime] })

  await t.test('a worker that lost its claim records nothing', async t => {
    await change()
    const told = (await eventsOf(api, lb)).length
    const lose = async () => {
      const released = { lease_owner: null, lease_until: null }
      await api.database('load_balancer').where({ id: lb }).increment('fence', 1).update(released)
    }
    t.match(await work(lose), { kind: 'lost' })
    t.match(
      await work(async () => {
        await lose()
        return refuse()
      }),
      { kind: 'lost' },
    )
    t.equal((await eventsOf(api, lb)).length, told)
  })
})

t.test('old events are purged, by number and by age', async t => {
  const api = await startTestApi(PROVIDERS)
  t.teardown(api.stop)
  const lb = await makeBalancer(api)
  const quiet = await makeBalancer(api)
  await api.database.raw(
    `INSERT INTO load_balancer_event (load_balancer_id, created_at, generation, kind, detail)
     SELECT ?, now() - n * interval '1 minute', 1, 'applied', '{}' FROM generate_series(1, ?) n`,
    [lb, MAX_EVENTS + 5],
  )
  await api.database.raw(
    `INSERT INTO load_balancer_event (load_balancer_id, created_at, generation, kind, detail)
     SELECT ?, now() - n * interval '1 day', 1, 'applied', '{}' FROM generate_series(1, ?) n`,
    [quiet, EVENT_DAYS + 3],
  )
  const flapping = async (id: string, every: string, count: number) =>
    api.database.raw(
      `INSERT INTO load_balancer_event (load_balancer_id, created_at, generation, kind, detail)
       SELECT ?, now() - n * ?::interval, 1, 'status_changed', '{}' FROM generate_series(1, ?) n`,
      [id, every, count],
    )
  await flapping(lb, '1 second', MAX_EVENTS + 5)
  await flapping(quiet, '1 day', STATUS_DAYS + 3)
  await purgeRecords(api.database)
  const kept = async (id: string, kinds = ['requested', 'applied']) =>
    Number(
      (await api.database('load_balancer_event').where({ load_balancer_id: id }).whereIn('kind', kinds).count().first())
        ?.count,
    )
  t.equal(await kept(lb, ['status_changed']), MAX_EVENTS, 'changes of status do not push out the rest')
  t.equal(await kept(quiet, ['status_changed']), STATUS_DAYS - 1)
  t.equal(await kept(lb), MAX_EVENTS)
  const others = (await eventsOf(api, lb)).filter(({ kind }) => kind !== 'status_changed')
  t.equal(others[0]?.kind, 'requested', 'the newest are kept')
  t.equal(await kept(quiet), EVENT_DAYS)
  await purgeRecords(api.database)
  t.equal(await kept(lb), MAX_EVENTS, 'a second purge removes nothing more')
})

t.test('the migration renames the fields of stored amphora events', async t => {
  const api = await startTestApi(PROVIDERS)
  t.teardown(api.stop)
  const lb = await makeBalancer(api)
  const amphorae = [
    { amphora_id: NOWHERE, deed: 'created' },
    { amphora_id: NOWHERE, deed: 'configured', how: 'reload' },
  ]
  await api.database.raw(
    `INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail) VALUES (?, 1, 'applied', ?)`,
    [lb, JSON.stringify({ amphorae })],
  )
  await inTransaction(api.database, trx => actions.up(trx))
  const [applied, requested] = await eventsOf(api, lb)
  t.same(applied?.amphorae, [
    { amphora_id: NOWHERE, action: 'created' },
    { amphora_id: NOWHERE, how: 'reload', action: 'configured' },
  ])
  t.same(requested?.amphorae, [], 'a requested event names no amphorae')
})
