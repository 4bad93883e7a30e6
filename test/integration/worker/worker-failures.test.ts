import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { sqlState } from '../../../controller/database/transaction.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import { AppliedWithFault, ProvisioningFault } from '../../../controller/provider/provider.js'
import type { Claim } from '../../../controller/queue/claim.js'
import { recordFault, settle, settleWithFault } from '../../../controller/worker/settle.js'
import {
  changeLoadBalancer,
  findLoadBalancer,
  insertChildren,
  insertLoadBalancer,
  notify,
} from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'
import { createGate, createWorkerScene } from '../../support/worlds/worker-scene.js'

const { db, recorder, start, settledAt, faulted, stop } = await createWorkerScene()
t.teardown(stop)

const worker = await start('first')
t.teardown(worker.stop)

t.test('a failure becomes a fault and is retried with growing pauses', async t => {
  const id = await insertLoadBalancer(db)
  let broken = true
  recorder.behave(id, async () => {
    if (broken) throw new ProvisioningFault('no-address-left', 'No address is left on subnet s.')
  })
  await notify(db, id)
  const first = await faulted(id)
  t.match(first, {
    fault: { code: 'no-address-left', text: 'No address is left on subnet s.' },
    fault_generation: 1,
    attempts: 1,
    applied_generation: 0,
  })
  const second = await faulted(id, 2)
  t.same(second.fault_since, first.fault_since, 'the fault keeps the time of the first failure')
  const pause = second.retry_at!.getTime() - first.retry_at!.getTime()
  t.ok(pause >= 1900, `the next pause is twice as long (${pause} ms from retry to retry)`)
  const { rows } = await db.raw(
    `SELECT (SELECT retry_at - now() > interval '1 second' FROM load_balancer WHERE id = ?) AS later`,
    [id],
  )
  t.ok(rows[0].later)

  await t.test('a change is attempted at once, even during the pause', async t => {
    broken = false
    await db('load_balancer')
      .where({ id })
      .update({ retry_at: db.raw(`now() + interval '5 minutes'`), generation: 2 })
    await notify(db, id)
    const row = await settledAt(id, 2)
    t.match(row, { fault: null, fault_generation: null, fault_since: null, attempts: 0, retry_at: null })
  })
})

t.test('the pause doubles up to five minutes, and a change resets it', async t => {
  const id = await insertLoadBalancer(db, { lease_until: db.raw(`now() + interval '1 hour'`) })
  const claim: Claim = { table: 'load_balancer', id, fence: 0, heldUntil: Number.POSITIVE_INFINITY, claimedAt: 'now' }
  const tree = (await readTree(db, id))!
  const pauses: (number | null)[] = []
  for (let attempt = 0; attempt < 12; attempt++) {
    pauses.push(await recordFault(db, claim, tree, { code: 'x', text: 'y' }))
    await db('load_balancer')
      .where({ id })
      .update({ lease_until: db.raw(`now() + interval '1 hour'`) })
  }
  t.same(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300])
  t.equal(await recordFault(db, claim, { ...tree, generation: 2 }, { code: 'x', text: 'y' }), 1)
  await db('load_balancer').where({ id }).delete()
})

t.test('what is in effect with a fault is rechecked with growing pauses, until nothing is wrong', async t => {
  const id = await insertLoadBalancer(db)
  let broken = true
  recorder.behave(id, async () => {
    if (broken) throw new AppliedWithFault('certificate-unavailable', 'The key manager does not give out a.')
  })
  await notify(db, id)
  const first = await faulted(id)
  t.match(first, {
    fault: { code: 'certificate-unavailable' },
    fault_generation: 1,
    applied_generation: 1,
    retry_at: null,
  })
  t.not(first.recheck_at, null)
  const second = await faulted(id, 2)
  t.same(second.fault_since, first.fault_since, 'the fault keeps the time of the first failure')
  t.ok(second.recheck_at!.getTime() - first.recheck_at!.getTime() >= 1900, 'the next pause is twice as long')
  broken = false
  await db('load_balancer')
    .where({ id })
    .update({ recheck_at: db.raw('now()') })
  await notify(db, id)
  await eventually('the fault is over', async () => (await findLoadBalancer(db, id))?.fault === null)
  t.match(await settledAt(id, 1), { fault_since: null, attempts: 0, retry_at: null, recheck_at: null })
  t.same(
    await db('load_balancer_event')
      .where({ load_balancer_id: id })
      .orderBy(['created_at', 'id'])
      .select('kind', 'count'),
    [
      { kind: 'applied', count: 1 },
      { kind: 'failed', count: 2 },
    ],
  )
})

t.test('a recheck that is requested meanwhile does not wait for the pause after a fault', async t => {
  const later = () => db.raw(`now() + interval '1 hour'`)
  const id = await insertLoadBalancer(db, { lease_until: later() })
  const tree = (await readTree(db, id))!
  const claim: Claim = { table: 'load_balancer', id, fence: 0, heldUntil: Number.POSITIVE_INFINITY, claimedAt: 'now' }
  const change = (changes: object) => db('load_balancer').where({ id }).update(changes)
  const apply = async (before: object = {}, meanwhile: object = {}) => {
    await change({ lease_until: later(), ...before })
    const { rows } = await db.raw('SELECT now()::text AS now')
    await change({ updated_at: later(), ...meanwhile })
    const held = { ...claim, claimedAt: rows[0].now }
    return settleWithFault(db, held, tree, {
      effort: { milliseconds: 1, amphorae: [] },
      fault: { code: 'x', text: 'y' },
    })
  }
  const pauses: number[] = []
  for (let attempt = 0; attempt < 11; attempt++) pauses.push((await apply({ recheck_at: null })).retrySeconds)
  t.same(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])
  const { recheck_at } = (await findLoadBalancer(db, id))!
  t.ok(recheck_at!.getTime() > Date.now() + 290_000)
  t.match(await apply({ recheck_at: db.raw(`now() + interval '5 seconds'`) }), { settled: 'settled' })
  t.ok((await findLoadBalancer(db, id))!.recheck_at!.getTime() < Date.now() + 6_000, 'the earlier one counts')
  t.match(await apply({}, { recheck_at: db.raw('now()') }), { settled: 'again' }, 'one that is due already is made now')
  t.not((await findLoadBalancer(db, id))!.lease_until, null)
  const [before] = await db('load_balancer').where({ id })
  t.equal(await recordFault(db, claim, tree, { code: 'z', text: 'y' }), 1, 'a failure is another matter')
  const failed = (await findLoadBalancer(db, id))!
  t.ok(failed.fault_since! > before.fault_since)
  await db('load_balancer').where({ id }).delete()
  t.match(await apply(), { settled: 'lost' })
})

t.test('a change made during a failing attempt is attempted at once', async t => {
  const id = await insertLoadBalancer(db)
  const gate = createGate()
  recorder.behave(id, async ({ tree }) => {
    if (tree.generation > 1) return
    await gate.pass()
    throw new ProvisioningFault('x', 'y')
  })
  await notify(db, id)
  await gate.arrived
  await changeLoadBalancer(db, id)
  const asked = performance.now()
  gate.open()
  await settledAt(id, 2)
  t.ok(performance.now() - asked < 900, 'sooner than the shortest pause')
})

t.test('unexpected errors are not shown to the owner', async t => {
  const id = await insertLoadBalancer(db)
  recorder.behave(id, () => Promise.reject(new Error('postgres://user:password@host')))
  await notify(db, id)
  const row = await faulted(id)
  t.equal(row.fault?.code, 'internal')
  t.notMatch(row.fault?.text, /password/)
  await db('load_balancer').where({ id }).delete()
})

t.test('a disabled provider yields a fault that names it', async t => {
  const id = await insertLoadBalancer(db, { provider: 'other' })
  await notify(db, id)
  t.match((await faulted(id)).fault, { code: 'provider-not-enabled', text: /"other"/ })
  await db('load_balancer').where({ id }).delete()
})

t.test('a failed recheck is retried after a pause without another request', async t => {
  const id = await insertLoadBalancer(db, { applied_generation: 1 })
  let failures = 1
  recorder.behave(id, async () => {
    if (failures-- > 0) throw new ProvisioningFault('amphora-unreachable', 'silent')
  })
  await db('load_balancer').where({ id }).update({ recheck_at: db.fn.now() })
  await notify(db, id)
  t.match((await faulted(id)).fault, { code: 'amphora-unreachable' })
  await eventually('rechecked', async () => (await findLoadBalancer(db, id))?.recheck_at === null)
  t.equal(recorder.callsFor(id).length, 2)
})

t.test('a load balancer is removed even when PostgreSQL aborts the removal in a deadlock', async t => {
  // PostgreSQL aborts whichever has waited for a second: the writer, if this process gets no CPU in time.
  for (let attempt = 1; (await removeInDeadlock(t)) !== 'removal'; attempt++) {
    if (attempt === 10) throw new Error('PostgreSQL never aborted the removal')
  }
})

/** Deadlocks the removal with a writer. @returns which of the two PostgreSQL aborted */
async function removeInDeadlock(t: Test): Promise<'removal' | 'writer'> {
  const lease = { lease_until: db.raw(`now() + interval '1 hour'`) }
  const id = await insertLoadBalancer(db, { change: 'delete', generation: 2, ...lease })
  const { listenerId } = await insertChildren(db, id, 1)
  const reading = () => ({ listener_id: listenerId, amphora_id: randomUUID(), epoch: 'e' })
  await db('listener_statistics').insert(reading())
  const claim: Claim = { table: 'load_balancer', id, fence: 0, heldUntil: Number.POSITIVE_INFINITY, claimedAt: 'now' }
  const tree = (await readTree(db, id))!

  // The writer holds a row that the removal needs, and waits for the listener that the removal holds.
  const writer = await db.transaction()
  await writer('listener_statistics').where({ listener_id: listenerId }).update({ bytes_in: 1 })
  const settled = settle(db, claim, tree)
  const isWaiting = async () => {
    const { rows } = await db.raw(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    )
    return rows.length > 0
  }
  await eventually('the removal waits', isWaiting)
  const failure = await writer('listener_statistics')
    .insert(reading())
    .then(
      () => null,
      (error: unknown) => error,
    )
  if (failure === null) await writer.commit()
  else await writer.rollback()
  if (failure !== null && sqlState(failure) !== '40P01') throw failure
  t.equal(await settled, 'settled')
  t.equal(await findLoadBalancer(db, id), undefined)
  return failure === null ? 'removal' : 'writer'
}
