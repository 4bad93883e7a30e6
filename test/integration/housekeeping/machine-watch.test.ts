import { randomUUID } from 'node:crypto'
import t from 'tap'
import type { Machine } from '../../../controller/compute/driver.js'
import type { Database } from '../../../controller/database/connection.js'
import {
  NOTHING_WATCHED,
  type Watched,
  watchInterfaces,
  watchMachines,
} from '../../../controller/housekeeping/machine-watch.js'
import { WAKE_CHANNEL } from '../../../controller/load-balancer/change/wake-channel.js'
import { createLog } from '../../../controller/log/log.js'
import { listenForWakeUps } from '../../../controller/queue/wake-up.js'
import { createTestDatabase } from '../../support/database/database.js'
import { findLoadBalancer, insertLoadBalancer } from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'

const log = createLog('test', 'silent')

t.test('the machine watch', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')
  const machines = new Map<string, Machine['state']>()
  const starts = new Map<string, string>()
  const compute = {
    list: async () =>
      [...machines].map(([amphoraId, state]): Machine => {
        const start = starts.get(amphoraId)
        return {
          amphoraId,
          driver: 'namespace',
          computeId: '',
          name: '',
          state,
          ...(start === undefined ? {} : { start }),
        }
      }),
  }
  const watch = (before: Watched, database: Database = db) => watchMachines({ database, compute, log }, before)

  /** A settled load balancer with one amphora of this status, whose machine runs. */
  const settled = async (status = 'ALLOCATED', columns: Record<string, unknown> = {}) => {
    const amphora = randomUUID()
    const id = await insertLoadBalancer(db, { applied_generation: 1, ...columns })
    await db('amphora').insert({ id: amphora, load_balancer_id: id, status })
    machines.set(amphora, 'running')
    return { id, amphora }
  }
  const recheckOf = async (id: string) => (await findLoadBalancer(db, id))?.recheck_at ?? null
  const forget = async (id: string) => void (await db('load_balancer').where({ id }).update({ recheck_at: null }))

  await t.test('the end of a machine requests one recheck, at once, and wakes the workers', async t => {
    let woken = 0
    const wakeUps = await listenForWakeUps({
      databaseUrl: testDatabase.urlOf('load_balancer'),
      channel: WAKE_CHANNEL,
      onWake: () => {
        woken += 1
      },
      log,
    })
    t.teardown(wakeUps.stop)
    const wakes = woken
    const [ends, other] = [await settled(), await settled()]
    const first = await watch(NOTHING_WATCHED)
    t.equal(await recheckOf(ends.id), null, 'a running machine requests no recheck')
    machines.set(ends.amphora, 'stopped')
    const second = await watch(first)
    t.ok(await recheckOf(ends.id))
    t.equal(await recheckOf(other.id), null, 'other load balancers are left alone')
    await eventually('a wake-up', () => woken > wakes)
    await forget(ends.id)
    const third = await watch(second)
    t.equal(await recheckOf(ends.id), null, 'the same end requests no second recheck')
    machines.set(ends.amphora, 'running')
    const fourth = await watch(third)
    machines.delete(ends.amphora)
    await watch(fourth)
    t.ok(
      await recheckOf(ends.id),
      'the end of the next machine requests a recheck too, even when nothing is left of it',
    )
  })

  await t.test('a machine that starts and ends between two observations requests one recheck', async t => {
    const { id, amphora } = await settled()
    starts.set(amphora, 'first')
    const first = await watch(NOTHING_WATCHED)
    machines.set(amphora, 'stopped')
    const second = await watch(first)
    await forget(id)
    starts.delete(amphora)
    const third = await watch(second)
    t.equal(await recheckOf(id), null, 'a machine that is being created has not run yet')
    starts.set(amphora, 'second')
    const fourth = await watch(third)
    t.ok(await recheckOf(id))
    await forget(id)
    await watch(fourth)
    t.equal(await recheckOf(id), null)
  })

  await t.test('the first observation requests a recheck for every stopped machine', async t => {
    const { id, amphora } = await settled()
    machines.set(amphora, 'stopped')
    await watch(NOTHING_WATCHED)
    t.ok(await recheckOf(id))
  })

  await t.test('an amphora that is being created or removed is left to its converge', async t => {
    for (const status of ['BOOTING', 'PENDING_DELETE']) {
      const { id, amphora } = await settled(status)
      const before = await watch(NOTHING_WATCHED)
      machines.set(amphora, 'stopped')
      await watch(before)
      t.equal(await recheckOf(id), null, status)
    }
  })

  await t.test('the pause after another fault ends at once, its length is kept', async t => {
    const retry_at = new Date(Date.now() + 300_000)
    const fault = { fault: '{"code":"a","text":"b"}', fault_generation: 1, attempts: 9, retry_at }
    const { id, amphora } = await settled('ALLOCATED', fault)
    const before = await watch(NOTHING_WATCHED)
    machines.set(amphora, 'stopped')
    await watch(before)
    const row = await findLoadBalancer(db, id)
    t.ok(row?.retry_at && row.retry_at <= new Date(Date.now() + 1_000))
    t.equal(row?.attempts, 9)
  })

  await t.test('a machine that ends right after each start keeps the pause after its fault', async t => {
    const retry_at = new Date(Date.now() + 300_000)
    const fault = { fault: '{"code":"a","text":"b"}', fault_generation: 1, attempts: 9, retry_at }
    const { id, amphora } = await settled('ALLOCATED', fault)
    machines.set(amphora, 'stopped')
    const before = await watch(NOTHING_WATCHED)
    await db('load_balancer').where({ id }).update({ retry_at, recheck_at: null })
    starts.set(amphora, 'another')
    await watch(before)
    const row = await findLoadBalancer(db, id)
    t.ok(row?.recheck_at)
    t.same(row?.retry_at, retry_at)
  })

  await t.test('a lost interface requests one recheck, and another when it is lost again', async t => {
    const { id, amphora } = await settled()
    let broken: string[] = []
    let before: ReadonlySet<string> = new Set()
    const look = async (brokenInterfaces = async () => broken) => {
      before = await watchInterfaces({ database: db, compute: { brokenInterfaces }, log }, before)
      const isAsked = (await recheckOf(id)) !== null
      await forget(id)
      return isAsked
    }
    for (const round of [1, 2]) {
      t.equal(await look(), false, `round ${round}: no interface is broken`)
      broken = [amphora]
      t.equal(await look(), true)
      t.equal(await look(), false, 'the same loss requests no second recheck')
      broken = []
    }
    await look()
    const sights = [[amphora], []]
    t.equal(
      await look(async () => sights.shift() ?? []),
      false,
      'an interface that was still being plugged is not reported',
    )
  })

  await t.test('an end that could not be recorded is recorded later', async t => {
    const retry_at = new Date(Date.now() + 300_000)
    const fault = { fault: '{"code":"a","text":"b"}', fault_generation: 1, attempts: 9, retry_at }
    const { id, amphora } = await settled('ALLOCATED', fault)
    const before = await watch(NOTHING_WATCHED)
    await forget(id)
    machines.set(amphora, 'stopped')
    const away = { raw: () => ({ options: () => Promise.reject(new Error('away')) }) } as unknown as Database
    const still = await watch(before, away)
    t.equal(await recheckOf(id), null)
    starts.set(amphora, 'another')
    await watch(still)
    t.ok(await recheckOf(id))
    const row = await findLoadBalancer(db, id)
    t.ok(row?.retry_at && row.retry_at < retry_at, 'as the observed end, even when another follows')
  })
})
