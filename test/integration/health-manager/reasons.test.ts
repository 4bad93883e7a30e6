import t from 'tap'
import type { Report } from '../../../amphora-agent/protocol/heartbeat.js'
import { MAX_PER_OBJECT } from '../../../controller/health-manager/operating/write-statuses.js'
import { createWorld, none, startManager } from '../../support/worlds/health-manager.js'

t.test('the reasons of statuses are stored, and their changes are in the history once', async t => {
  const { db, ids, sendReport, until } = await createWorld(t, 60)
  const other = await startManager(db, 60)
  t.teardown(() => other.stop())
  const check = { status: 'L4CON', code: 0, words: 'Connection refused' } as const
  const report = async (m2: 'UP' | 'DOWN', checks: Report['checks'] = []) => {
    const fields: Partial<Report> = {
      listeners: [{ index: 0, state: 'OPEN', counters: none }],
      pools: [{ index: 0, state: 'UP', counters: none, firstMember: 0, members: ['UP', m2] }],
      checks,
    }
    await Promise.all([sendReport(fields), sendReport(fields, other.port)])
  }
  const member = () => db('member').where({ id: ids.m2 }).first()
  const pool = () => db('pool').where({ id: ids.pool }).first()
  const history = () => db('load_balancer_event').where({ kind: 'status_changed' }).orderBy('created_at')
  const ofMember = async () => (await history()).filter(({ detail }) => detail.object_id === ids.m2)

  await report('UP')
  await until(member, row => row.operating_status === 'ONLINE')
  await report('DOWN', [{ pool: 0, check, members: [1] }])
  const down = await until(member, row => row.operating_status === 'ERROR')
  t.equal(down.operating_reason, 'Layer4 connection problem: Connection refused')
  t.match(await until(pool, row => row.operating_status === 'DEGRADED'), {
    operating_reason: '1 of 2 members is down: 10.0.0.9:81: Layer4 connection problem: Connection refused',
  })
  await report('DOWN', [{ pool: 0, check: { ...check, status: 'L4TOUT', words: '' }, members: [1] }])
  const timedOut = await until(member, row => row.operating_reason === 'Layer4 timeout')
  t.match(timedOut, { operating_reason: 'Layer4 timeout', operating_since: down.operating_since }, 'since stays')
  await report('UP')
  t.match(await until(member, row => row.operating_status === 'ONLINE'), { operating_reason: null })
  const first = await ofMember()
  t.match(
    first.map(({ detail }) => detail.status_change),
    [
      { from: 'NO_MONITOR', to: 'ONLINE', reason: null },
      { from: 'ONLINE', to: 'ERROR', reason: 'Layer4 connection problem: Connection refused' },
      { from: 'ERROR', to: 'ONLINE', reason: null },
    ],
    'two health managers hear it, and one records it',
  )
  const types = new Set((await history()).map(({ detail }) => detail.object_type))
  t.strictSame([...types].sort(), ['listener', 'loadbalancer', 'member', 'pool'])

  for (let i = 0; i < MAX_PER_OBJECT; i++) {
    const status = i % 2 === 0 ? 'ERROR' : 'ONLINE'
    await report(i % 2 === 0 ? 'DOWN' : 'UP')
    await until(member, row => row.operating_status === status)
  }
  t.equal((await ofMember()).length, MAX_PER_OBJECT, 'a flapping member does not fill the history')
})

t.test('a load balancer none of whose amphorae is heard says so until one is', async t => {
  const { db, ids, sendBeat, until } = await createWorld(t, 1)
  const row = () => db('load_balancer').where({ id: ids.lb }).first()
  await sendBeat()
  const silent = await until(row, value => value.unheard_since !== null)
  const { last_seen } = await db('amphora_health').first()
  t.strictSame(silent.unheard_since, last_seen)
  const beats = setInterval(() => void sendBeat(), 200)
  t.teardown(() => clearInterval(beats))
  t.equal((await until(row, value => value.unheard_since === null)).unheard_since, null)
})
