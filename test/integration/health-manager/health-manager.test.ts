import { randomUUID } from 'node:crypto'
import t from 'tap'
import { encodeBeat } from '../../../amphora-agent/protocol/heartbeat/datagram.js'
import type { Report } from '../../../amphora-agent/protocol/heartbeat.js'
import { amphoraIdentity } from '../../../controller/compute/amphora-identity.js'
import { createWorld, MASTER, none, SHA } from '../../support/worlds/health-manager.js'

t.test('each valid heartbeat is recorded once', async t => {
  const { db, ids, key, send, beat, sendBeat, until, restart } = await createWorld(t)
  const health = () => db('amphora_health').where({ amphora_id: ids.amphora }).first()

  const first = encodeBeat(beat(), key)
  await send(first)
  t.match(await until(health, row => row !== undefined), {
    last_seq: 1,
    needs_apply: false,
    haproxy_running: true,
    config_hash: SHA.slice(0, 16),
  })

  const wrongKey = amphoraIdentity(Buffer.alloc(32, 8), ids.amphora).heartbeatKey
  await send(encodeBeat(beat({ seq: 900 }), wrongKey))
  await send(Buffer.concat([first, Buffer.alloc(4000)]))
  await send(Buffer.alloc(0))
  await send(Buffer.from('LBHB and then nothing of sense'))
  await send(first)
  await sendBeat()
  const row = await until(health, value => value?.last_seq >= 2)
  t.equal(row.last_seq < 900, true, 'forged, oversized, empty and replayed datagrams change nothing')

  const replay = encodeBeat(beat({ haproxyRunning: false }), key)
  await send(replay)
  await until(health, value => value?.haproxy_running === false)
  await sendBeat()
  await until(health, value => value?.haproxy_running === true)
  await restart()
  await send(replay)
  await sendBeat()
  const after = await until(health, value => value?.last_seq > row.last_seq + 2)
  t.equal(after.haproxy_running, true, 'a restarted health manager accepts no old datagram')

  const unknown = randomUUID()
  await send(encodeBeat(beat({ amphoraId: unknown }), amphoraIdentity(MASTER, unknown).heartbeatKey))
  await sendBeat()
  await until(health, value => value?.last_seq > after.last_seq)
  t.equal(await db('amphora_health').where({ amphora_id: unknown }).first(), undefined, 'no row, no record')
})

t.test('reports set operating statuses and statistics', async t => {
  const { db, ids, sendReport, until } = await createWorld(t, 60)
  const statuses = async () => {
    const of = async (table: string, id: string) =>
      (await db(table).where({ id }).first('operating_status')).operating_status
    return [
      await of('load_balancer', ids.lb),
      await of('listener', ids.listener),
      await of('pool', ids.pool),
      await of('member', ids.m1),
      await of('member', ids.m2),
    ].join(' ')
  }
  const counters = { bytesIn: 100, bytesOut: 1000, activeConnections: 3, totalConnections: 7, requestErrors: 1 }
  const report = (fields: Partial<Report>, m2: 'UP' | 'DOWN', listenerCounters = counters) =>
    sendReport({
      listeners: [{ index: 0, state: 'OPEN', counters: listenerCounters }],
      pools: [{ index: 0, state: 'UP', counters: none, firstMember: 0, members: ['UP', m2] }],
      ...fields,
    })

  await report({}, 'UP')
  t.equal(await until(statuses, value => value.startsWith('ONLINE')), 'ONLINE ONLINE ONLINE ONLINE ONLINE')
  await report({}, 'DOWN')
  t.equal(await until(statuses, value => value.startsWith('DEGRADED')), 'DEGRADED ONLINE DEGRADED ONLINE ERROR')

  const totals = async () =>
    db('listener_statistics')
      .where({ listener_id: ids.listener })
      .first(
        db.raw('base_bytes_in + bytes_in AS "in"'),
        db.raw('base_bytes_out + bytes_out AS "out"'),
        db.raw('base_total_connections + total_connections AS connections'),
        db.raw('base_request_errors + request_errors AS errors'),
        'active_connections',
      )
  t.match(await totals(), { in: 100, out: 1000, connections: 7, errors: 1, active_connections: 3 })
  await report({}, 'DOWN', { ...counters, bytesIn: 90 })
  await report({ epoch: 'f'.repeat(16) }, 'UP', { ...counters, bytesIn: 5, bytesOut: 50, activeConnections: 1 })
  t.match(
    await until(totals, value => value.in === 105),
    { in: 105, out: 1050, active_connections: 1 },
    'a new epoch adds',
  )

  await t.test('pool statistics are kept per listener', async t => {
    const pool = () => db('pool_statistics').where({ pool_id: ids.pool }).first()
    const count = (epoch: string, bytesIn: number) => {
      const counted = { ...counters, bytesIn }
      const pools = [{ index: 0, state: 'UP' as const, counters: counted, firstMember: 0, members: [] }]
      return sendReport({ epoch: epoch.repeat(16), pools })
    }
    await count('e', 40)
    t.match(await until(pool, row => row?.bytes_in === 40), {
      listener_id: ids.listener,
      amphora_id: ids.amphora,
      base_bytes_in: 0,
      bytes_out: 1000,
      active_connections: 3,
      total_connections: 7,
      request_errors: 1,
    })
    await count('f', 2)
    t.match(await until(pool, row => row?.bytes_in === 2), { base_bytes_in: 40, base_bytes_out: 1000, bytes_out: 1000 })
    await count('f', 1)
    await count('f', 3)
    t.match(await until(pool, row => row?.bytes_in === 3), { base_bytes_in: 40 }, 'counters never go backwards')
  })

  await report({ configHash: '00'.repeat(8), epoch: 'f'.repeat(16) }, 'DOWN')
  await report({ epoch: 'f'.repeat(16) }, 'UP', { ...counters, bytesIn: 6 })
  await until(totals, value => value.in === 106)
  t.equal(await statuses(), 'ONLINE ONLINE ONLINE ONLINE ONLINE', 'a report of another configuration is ignored')

  await report({ configHash: 'cd'.repeat(8), epoch: 'f'.repeat(16) }, 'DOWN')
  await new Promise(resolve => setTimeout(resolve, 1200))
  await db('amphora').update({ applied_sha256: 'cd'.repeat(32) })
  t.equal(
    await until(statuses, value => value.startsWith('DEGRADED')),
    'DEGRADED ONLINE DEGRADED ONLINE ERROR',
    'a report that precedes the record of its apply counts once the record is written',
  )
})

t.test('repairs become events, each once, and a hundred at most', async t => {
  const { db, ids, sendBeat, sendReport, until, restart } = await createWorld(t)
  const lines = () => db('load_balancer_event').where({ kind: 'repaired' }).orderByRaw(`detail->'repair'->>'text'`)
  const now = Date.now()
  const repairs = [
    { kind: 'repaired' as const, atMs: now, text: 'a: the VIP was missing' },
    { kind: 'repaired' as const, atMs: now + 1, text: 'b: HAProxy had ended' },
  ]
  await sendBeat({ mismatches: ['interface', 'disk'] })
  await sendReport({ repairs })
  t.match(await until(lines, rows => rows.length === 2), [
    { detail: { repair: { amphora_id: ids.amphora, text: 'a: the VIP was missing', repaired_at: /^20/ } } },
    { detail: { repair: { text: 'b: HAProxy had ended' } } },
  ])
  t.match(await db('amphora_health').first(), { mismatches: ['interface', 'disk'], repaired_ms: now + 1 })

  await restart()
  await sendReport({ repairs: [...repairs, { kind: 'repaired', atMs: now + 2, text: 'c: told beside the old ones' }] })
  t.equal((await until(lines, rows => rows.length >= 3)).length, 3, 'each once, even after a restart')
  await sendReport({ repairs: [{ kind: 'closed', atMs: now + 3_600_000, text: 'd: from the future' }] })
  for (let sent = 0; sent < 130; sent += 10) {
    await sendReport({
      repairs: Array.from({ length: 10 }, (_, i) => ({
        kind: 'repaired',
        atMs: now + 10 + sent + i,
        text: 'e: flood',
      })),
    })
    await until(
      () => db('amphora_health').first(),
      row => row.repaired_ms >= now + 19 + sent,
    )
  }
  t.equal((await lines()).length, 100)
  t.notMatch(JSON.stringify(await lines()), /future/)
  await sendBeat()
  t.match(
    await until(
      () => db('amphora_health').first(),
      row => row.mismatches.length === 0,
    ),
    { mismatches: [] },
  )
})

t.test('in a pair, the VIP’s holder decides operating statuses', async t => {
  const { db, ids, sendReport, until } = await createWorld(t, 60)
  const report = (fields: Partial<Report>, m2: 'UP' | 'DOWN', bytesIn: number) =>
    sendReport({
      listeners: [{ index: 0, state: 'OPEN', counters: { ...none, bytesIn } }],
      pools: [{ index: 0, state: 'UP', counters: none, firstMember: 0, members: ['UP', m2] }],
      ...fields,
    })
  const status = async () => (await db('member').where({ id: ids.m2 }).first()).operating_status
  const counted = async () => (await db('listener_statistics').first())?.bytes_in
  await report({}, 'UP', 1)
  t.equal(await until(status, value => value === 'ONLINE'), 'ONLINE')
  await report({ vrrpMaster: false }, 'DOWN', 2)
  t.equal(await until(counted, value => value === 2), 2, 'a standby’s counters count')
  t.equal(await status(), 'ONLINE', 'a standby’s statuses do not count')
  await db('amphora').update({ status: 'PENDING_DELETE' })
  await report({}, 'DOWN', 3)
  t.equal(await until(counted, value => value === 3), 3, 'counters of a deleted amphora count, statuses do not')
  t.equal(await status(), 'ONLINE')
})

t.test('extreme values from a compromised amphora neither block nor overflow its statistics', async t => {
  const { db, ids, sendReport, until } = await createWorld(t, 60)
  const counted = { ...none, bytesIn: Number.MAX_SAFE_INTEGER }
  const row = () => db('listener_statistics').where({ listener_id: ids.listener }).first()
  await sendReport({ listeners: [{ index: 0, state: 'OPEN', counters: counted }] })
  await until(row, value => value !== undefined)
  await db('listener_statistics').update({ base_bytes_in: Number.MAX_SAFE_INTEGER, sent_ms: Date.now() + 86_400_000 })
  await sendReport({ epoch: 'a'.repeat(16), listeners: [{ index: 0, state: 'OPEN', counters: counted }] })
  const after = await until(row, value => value.epoch === 'a'.repeat(16))
  t.equal(after.epoch, 'a'.repeat(16), 'a time in the future does not block later reports')
  t.equal(after.base_bytes_in, Number.MAX_SAFE_INTEGER, 'counters stop at the largest safe integer')
})

t.test('an amphora with another configuration is rechecked', async t => {
  const { db, ids, sendBeat, until } = await createWorld(t, 60)
  await db('amphora').update({ created_at: db.raw(`now() - interval '1 minute'`) })
  const recheck = async () => (await db('load_balancer').where({ id: ids.lb }).first('recheck_at')).recheck_at
  await sendBeat()
  await until(
    async () => db('amphora_health').first(),
    row => row !== undefined,
  )
  t.equal(await recheck(), null, 'no recheck while its configuration is current')
  await sendBeat({ configHash: '99'.repeat(8) })
  t.ok(await until(recheck, value => value !== null), 'a different hash causes a recheck')
  await db('load_balancer').update({ recheck_at: null })
  await sendBeat({ needsApply: true })
  t.ok(await until(recheck, value => value !== null), 'an amphora that asks for its configuration is rechecked')
})

t.test('only a silent amphora is rechecked', async t => {
  const { db, ids, sendBeat, until } = await createWorld(t, 1)
  await db('amphora').update({ created_at: db.raw(`now() - interval '1 minute'`) })
  const recheck = async () => (await db('load_balancer').where({ id: ids.lb }).first('recheck_at')).recheck_at
  const started = Date.now()
  while (Date.now() - started < 3000) {
    await sendBeat()
    await new Promise(resolve => setTimeout(resolve, 200))
  }
  t.equal(await recheck(), null)
  t.ok(await until(recheck, value => value !== null), 'a recheck is due after the heartbeats stop')
})

t.test('only a few silent load balancers of each project are rechecked at once', async t => {
  const { db, ids, until } = await createWorld(t, 1)
  const [before] = await db('load_balancer').where({ id: ids.lb })
  const silent = Array.from({ length: 5 }, () => ({ ...before, id: randomUUID(), project_id: 'greedy' }))
  await db('load_balancer').insert(silent)
  await db('amphora').insert(silent.map(({ id }) => ({ id: randomUUID(), load_balancer_id: id, status: 'ALLOCATED' })))
  await db('amphora').update({ created_at: db.raw(`now() - interval '1 minute'`) })
  const asked = () => db('load_balancer').whereNotNull('recheck_at').select('id', 'project_id', 'recheck_at')
  const rows = await until(asked, found => found.some(({ id }) => id === ids.lb))
  const first = rows.filter(({ recheck_at }) => +recheck_at === Math.min(...rows.map(row => +row.recheck_at)))
  t.equal(first.filter(({ project_id }) => project_id === 'greedy').length, 3)
  t.ok(first.some(({ id }) => id === ids.lb))
})

t.test('a fault of what is in effect holds up no other recheck', async t => {
  for (const [what, staleAfterSeconds] of [
    ['a silent amphora', 1],
    ['an amphora that asks for its configuration', 60],
  ] as const) {
    const { db, ids, sendBeat, until } = await createWorld(t, staleAfterSeconds)
    await db('amphora').update({ created_at: db.raw(`now() - interval '1 minute'`) })
    await db('load_balancer').update({
      fault: JSON.stringify({ code: 'certificate-unavailable', text: '' }),
      ...{ fault_generation: 3, attempts: 9, recheck_at: db.raw(`now() + interval '250 seconds'`) },
    })
    if (staleAfterSeconds === 60) await sendBeat({ needsApply: true })
    const recheck = async () => (await db('load_balancer').where({ id: ids.lb }).first('recheck_at')).recheck_at
    const isDue = (at: Date | null) => at !== null && at < new Date(Date.now() + 60_000)
    t.ok(isDue(await until(recheck, isDue)), `${what} is rechecked`)
  }
})

t.test('an amphora that comes back ends the back-off of its load balancer', async t => {
  const { db, ids, sendBeat, until } = await createWorld(t, 60)
  const retry = async () => (await db('load_balancer').where({ id: ids.lb }).first('retry_at')).retry_at
  const fault = (code: string) => ({
    fault: JSON.stringify({ code, text: '' }),
    ...{ fault_generation: 3, attempts: 9, retry_at: db.raw(`now() + interval '250 seconds'`) },
  })
  await db('load_balancer').update(fault('amphora-unreachable'))
  await sendBeat()
  const isOver = (at: Date | null) => at !== null && at < new Date(Date.now() + 1_000)
  t.ok(isOver(await until(retry, isOver)))
  await db('load_balancer').update(fault('amphora-unreachable'))
  await db('amphora_health').update({ heard_since: db.raw(`now() - interval '1 minute'`) })
  await sendBeat()
  await until(
    () => db('amphora_health').first(),
    row => row.last_seq === 2,
  )
  t.ok((await retry()) > new Date(Date.now() + 60_000), 'an amphora that was never silent does not')
})

t.test('a mismatch that an amphora cannot repair sets ERROR and requests rechecks', async t => {
  const { db, ids, sendBeat, sendReport, until } = await createWorld(t, 60)
  await db('amphora').update({ created_at: new Date(0) })
  const row = () => db('load_balancer').where({ id: ids.lb }).first()
  await sendReport({
    listeners: [{ index: 0, state: 'OPEN', counters: none }],
    pools: [{ index: 0, state: 'UP', counters: none, firstMember: 0, members: ['UP', 'UP'] }],
  })
  t.match(await until(row, ({ operating_status: status }) => status === 'ONLINE'), { operating_status: 'ONLINE' })
  await sendBeat({ vrrpMaster: false, mismatches: ['address'] })
  t.match(await until(row, ({ operating_status: status }) => status === 'ERROR'), {
    operating_status: 'ERROR',
    reported_status: 'ONLINE',
  })
  t.equal((await row()).impairment_reason, 'An amphora cannot restore its address')
  t.ok((await until(row, ({ recheck_at }) => recheck_at !== null)).recheck_at, 'a recheck is due')
  await db('load_balancer').update({ recheck_at: null })
  await db('amphora').update({ updated_at: db.raw(`now() - interval '1 minute'`) })
  await db('amphora_health').update({ mismatched_since: db.raw(`now() - interval '61 seconds'`) })
  t.ok((await until(row, ({ recheck_at }) => recheck_at !== null)).recheck_at, 'another recheck is due')
  const long = db.raw(`now() - interval '61 seconds'`)
  await db('amphora_health').update({ mismatched_since: long, last_seen: long })
  await sendBeat({ vrrpMaster: false, mismatches: ['address'] })
  const health = await until(
    () => db('amphora_health').first(),
    ({ last_seen }) => last_seen > new Date(Date.now() - 30_000),
  )
  t.ok(health.mismatched_since > new Date(Date.now() - 30_000), 'after silence, the mismatch counts as new')
  await sendBeat()
  t.match(await until(row, ({ operating_status: status }) => status === 'ONLINE'), { operating_status: 'ONLINE' })
})
