import { randomUUID } from 'node:crypto'
import t from 'tap'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import { ProvisioningFault } from '../../../controller/provider/provider.js'
import type { Claim } from '../../../controller/queue/claim.js'
import { recordFault, settle } from '../../../controller/worker/settle.js'
import {
  changeLoadBalancer,
  findLoadBalancer,
  insertChildren,
  insertLoadBalancer,
  notify,
} from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'
import { createGate, createWorkerScene } from '../../support/worlds/worker-scene.js'

const { db, recorder, start, settledAt, gone, faulted, stop } = await createWorkerScene()
t.teardown(stop)

const worker = await start('first')
t.teardown(worker.stop)

/** Columns of a load balancer that carries traffic and has a pending change. */
const CHANGED = { generation: 2, applied_generation: 1, change: 'update' }

t.test('a notification wakes the worker', async t => {
  const id = await insertLoadBalancer(db)
  const asked = performance.now()
  await notify(db, id)
  await settledAt(id, 1)
  const took = performance.now() - asked
  t.ok(took < 10_000, `${Math.round(took)} ms, although the sweep runs once a minute`)
  const [call] = recorder.callsFor(id)
  t.equal(call?.tree.generation, 1)
  t.equal(recorder.callsFor(id).length, 1)
})

t.test('changes made during an attempt are applied together under the same claim', async t => {
  const id = await insertLoadBalancer(db)
  const gate = createGate()
  recorder.behave(id, ({ tree }) => (tree.generation === 1 ? gate.pass() : Promise.resolve()))
  await notify(db, id)
  await gate.arrived
  for (let change = 0; change < 5; change++) await changeLoadBalancer(db, id)
  gate.open()
  await settledAt(id, 6)
  t.same(
    recorder.callsFor(id).map(call => call.tree.generation),
    [1, 6],
  )
  t.equal(new Set(recorder.callsFor(id).map(call => call.claim.fence)).size, 1)
})

t.test('two workers share the work and never work on the same load balancer at once', async t => {
  const second = await start('second')
  t.teardown(second.stop)
  const ids = await Promise.all(Array.from({ length: 12 }, () => insertLoadBalancer(db)))
  for (const id of ids) recorder.behave(id, () => new Promise(resolve => setTimeout(resolve, 5)))
  for (let round = 0; round < 5; round++) await Promise.all(ids.map(id => changeLoadBalancer(db, id)))
  for (const id of ids) await settledAt(id, 6)
  t.same(recorder.overlaps, [])
  const workers = new Set(ids.flatMap(id => recorder.callsFor(id).map(call => call.worker)))
  t.same([...workers].sort(), ['first', 'second'])
})

t.test('a worker never exceeds its concurrency', async t => {
  const ids = await Promise.all(
    Array.from({ length: 12 }, (_, at) => insertLoadBalancer(db, { project_id: `${at}`, ...CHANGED })),
  )
  const gate = createGate()
  for (const id of ids) recorder.behave(id, gate.pass)
  await notify(db, ids[0]!)
  const begun = () => ids.filter(id => recorder.callsFor(id).length > 0).length
  await eventually('eight began', () => begun() === 8)
  const held = await db('load_balancer').whereIn('id', ids).whereNotNull('lease_owner').select('id')
  t.equal(held.length, 8, 'it claims no more than it works on')
  gate.open()
  for (const id of ids) await settledAt(id, 2)
})

t.test('creates and deletes leave slots for load balancers that carry traffic', async t => {
  const gate = createGate()
  const busy = await Promise.all(
    Array.from({ length: 12 }, (_, at) =>
      insertLoadBalancer(db, { project_id: `${at}`, ...(at % 2 === 0 ? {} : { ...CHANGED, change: 'delete' }) }),
    ),
  )
  for (const id of busy) recorder.behave(id, gate.pass)
  const begun = () => busy.filter(id => recorder.callsFor(id).length > 0).length
  await notify(db, busy[0]!)
  await eventually('six began', () => begun() === 6)
  for (const columns of [CHANGED, { applied_generation: 1, recheck_at: db.fn.now() }]) {
    const serving = await insertLoadBalancer(db, { project_id: randomUUID(), ...columns })
    recorder.behave(serving, gate.pass)
    await notify(db, serving)
    await eventually('the one that carries traffic is worked on', () => recorder.callsFor(serving).length === 1)
  }
  t.equal(begun(), 6, 'six of eight slots')
  gate.open()
  for (const [at, id] of busy.entries()) await (at % 2 === 0 ? settledAt(id, 1) : gone(id))
})

t.test('updates leave slots for creates and deletes of other projects', async t => {
  const gate = createGate()
  t.teardown(gate.open)
  const changing = await Promise.all(
    Array.from({ length: 20 }, (_, at) => insertLoadBalancer(db, { project_id: `changing ${at % 2}`, ...CHANGED })),
  )
  for (const id of changing) recorder.behave(id, gate.pass)
  const begun = () => changing.filter(id => recorder.callsFor(id).length > 0).length
  await notify(db, changing[0]!)
  await eventually('six began', () => begun() === 6)
  const made = await insertLoadBalancer(db, { project_id: randomUUID() })
  const removed = await insertLoadBalancer(db, { project_id: randomUUID(), ...CHANGED, change: 'delete' })
  await notify(db, made)
  await Promise.all([settledAt(made, 1), gone(removed)])
  t.equal(begun(), 6, 'six of eight slots')
  gate.open()
  for (const id of changing) await settledAt(id, 2)
})

t.test('two projects that create load balancers leave a slot for a third', async t => {
  const gate = createGate()
  t.teardown(gate.open)
  const making = await Promise.all(
    Array.from({ length: 20 }, (_, at) => insertLoadBalancer(db, { project_id: `making ${at % 2}` })),
  )
  for (const id of making) recorder.behave(id, gate.pass)
  await notify(db, making[0]!)
  await eventually('four began', () => making.filter(id => recorder.callsFor(id).length > 0).length >= 4)
  const third = await insertLoadBalancer(db, { project_id: randomUUID() })
  await notify(db, third)
  await settledAt(third, 1)
  gate.open()
  for (const id of making) await settledAt(id, 1)
})

t.test('one project never holds all slots, and projects take turns', async t => {
  const gate = createGate()
  const greedy = await Promise.all(
    Array.from({ length: 10 }, () =>
      insertLoadBalancer(db, { project_id: 'greedy', created_at: new Date(0), ...CHANGED }),
    ),
  )
  for (const id of greedy) recorder.behave(id, gate.pass)
  await notify(db, greedy[0]!)
  await gate.arrived
  const begun = () => greedy.filter(id => recorder.callsFor(id).length > 0).length
  const second = await insertLoadBalancer(db, { project_id: 'second' })
  recorder.behave(second, gate.pass)
  await notify(db, second)
  await eventually('the second project has a slot', () => recorder.callsFor(second).length === 1)
  const quick = await insertLoadBalancer(db, { project_id: 'third' })
  await notify(db, quick)
  await settledAt(quick, 1)
  t.equal(begun(), 4, 'half of the eight slots')
  gate.open()
  for (const id of greedy) await settledAt(id, 2)
})

t.test('a worker that lost its claim writes nothing', async t => {
  const id = await insertLoadBalancer(db)
  const gate = createGate()
  recorder.behave(id, gate.pass)
  await notify(db, id)
  await gate.arrived
  await db('load_balancer')
    .where({ id })
    .update({ fence: db.raw('fence + 1'), lease_owner: 'thief', lease_until: db.raw(`now() + interval '1 minute'`) })
  await t.test('its next renewal aborts the attempt', async t => {
    const signal = recorder.callsFor(id)[0]!.signal
    await eventually('abort', () => signal.aborted)
    t.equal(recorder.callsFor(id)[0]!.claim.heldUntil, 0)
  })
  gate.open()
  await eventually('the attempt ends', () => recorder.overlaps.length === 0)
  await notify(db, id)
  const row = await findLoadBalancer(db, id)
  t.match(row, { applied_generation: 0, lease_owner: 'thief', fault: null })
  const tree = (await readTree(db, id))!
  const { claim } = recorder.callsFor(id)[0]!
  t.equal(await settle(db, claim, tree), 'lost')
  t.equal(await recordFault(db, claim, tree, { code: 'x', text: 'y' }), null)
  t.match(await findLoadBalancer(db, id), { applied_generation: 0, fault: null })
  await db('load_balancer').where({ id }).delete()
})

t.test('a load balancer can be deleted from every state', async t => {
  const never = await insertLoadBalancer(db)
  const applied = await insertLoadBalancer(db)
  const failing = await insertLoadBalancer(db)
  const busy = await insertLoadBalancer(db)
  const gate = createGate()
  recorder.behave(never, gate.pass)
  recorder.behave(busy, gate.pass)
  recorder.behave(failing, async ({ tree }) => {
    if (tree.change !== 'delete') throw new ProvisioningFault('x', 'y')
  })
  await insertChildren(db, applied, 1, [{ address: '192.0.2.1' }])
  for (const id of [applied, failing, busy]) await notify(db, id)
  await settledAt(applied, 1)
  await faulted(failing)
  await gate.arrived
  for (const id of [never, applied, failing, busy]) await changeLoadBalancer(db, id, 'delete')
  gate.open()
  for (const id of [never, applied, failing, busy]) await gone(id)
  t.equal((await db('pool').where({ load_balancer_id: applied })).length, 0)
  t.equal(recorder.callsFor(busy).at(-1)?.tree.change, 'delete')
})

t.test('deleted children are removed once their generation is applied, and no others', async t => {
  const id = await insertLoadBalancer(db, { lease_until: db.raw(`now() + interval '1 hour'`) })
  const { listenerId, poolId, monitorId, memberIds } = await insertChildren(db, id, 1, [
    { address: '192.0.2.1' },
    { address: '192.0.2.2' },
    { address: '192.0.2.3' },
  ])
  const claim: Claim = { table: 'load_balancer', id, fence: 0, heldUntil: Number.POSITIVE_INFINITY, claimedAt: 'now' }
  const remove = (table: string, row: string, generation: number) =>
    db(table).where({ id: row }).update({ change: 'delete', generation })
  await db('member').where({ id: memberIds[2] }).update({ admin_state_up: false })
  await remove('member', memberIds[0]!, 2)
  await remove('health_monitor', monitorId, 2)
  await db('load_balancer').where({ id }).update({ generation: 3 })
  await remove('listener', listenerId, 3)
  const tree = (await readTree(db, id))!
  t.equal(await settle(db, claim, { ...tree, generation: 2 }), 'again', 'the third generation waits')
  const left = await db('member').where({ load_balancer_id: id }).orderBy('server_number').select('operating_status')
  t.same(
    left.map(row => row.operating_status),
    ['NO_MONITOR', 'OFFLINE'],
    'members lose their monitor; the disabled one stays OFFLINE',
  )
  t.equal((await db('health_monitor').where({ id: monitorId })).length, 0)
  t.equal((await db('listener').where({ id: listenerId })).length, 1)
  t.ok((await findLoadBalancer(db, id))?.lease_until, 'the claim is kept for the next generation')
  await remove('pool', poolId, 3)
  t.equal(await settle(db, claim, tree), 'settled')
  t.equal((await db('listener').where({ id: listenerId })).length, 0)
  t.equal((await db('member').where({ load_balancer_id: id })).length, 0)
  t.match(await findLoadBalancer(db, id), { applied_generation: 3, lease_until: null })
})

t.test('each object is updated when its change takes effect, and only then', async t => {
  const id = await insertLoadBalancer(db, { lease_until: db.raw(`now() + interval '1 hour'`) })
  const made = await insertChildren(db, id, 1, [{ address: '192.0.2.1' }, { address: '192.0.2.2' }])
  const claim: Claim = { table: 'load_balancer', id, fence: 0, heldUntil: Number.POSITIVE_INFINITY, claimedAt: 'now' }
  const before = new Date('2020-01-01T00:00:00Z')
  const rows = [
    ['load_balancer', id],
    ['listener', made.listenerId],
    ['pool', made.poolId],
    ['health_monitor', made.monitorId],
    ['member', made.memberIds[0]!],
    ['member', made.memberIds[1]!],
  ] as const
  /** Settles a generation. @returns the tables of the rows that it updated */
  const updated = async (generation: number) => {
    for (const [table, row] of rows) await db(table).where({ id: row }).update({ updated_at: before })
    await settle(db, claim, { ...(await readTree(db, id))!, generation })
    const now = await Promise.all(rows.map(([table, row]) => db(table).where({ id: row }).first('updated_at')))
    return rows.filter((_, at) => now[at]?.updated_at > before).map(([table]) => table)
  }
  t.same(await updated(1), ['load_balancer', 'listener', 'pool', 'health_monitor', 'member', 'member'], 'created')
  await db('load_balancer').where({ id }).update({ generation: 3 })
  await db('member').where({ id: made.memberIds[0] }).update({ generation: 2, change: 'update' })
  await db('member').where({ id: made.memberIds[1] }).update({ generation: 3, change: 'update' })
  t.same(await updated(2), ['load_balancer', 'member'], 'the third generation does not count yet')
  t.same(await updated(3), ['load_balancer', 'member'])
  t.same(await updated(3), [], 'a recheck changes nothing')
})

t.test('a recheck requested during a recheck runs after it', async t => {
  const id = await insertLoadBalancer(db, { applied_generation: 1 })
  const gate = createGate()
  recorder.behave(id, gate.pass)
  const ask = async () => {
    await db('load_balancer').where({ id }).update({ recheck_at: db.fn.now() })
    await notify(db, id)
  }
  await ask()
  await gate.arrived
  await ask()
  gate.open()
  await eventually(
    'rechecked twice',
    async () => {
      const row = await findLoadBalancer(db, id)
      return recorder.callsFor(id).length === 2 && row?.recheck_at === null && row.lease_owner === null
    },
    1_000,
  )
  t.equal((await findLoadBalancer(db, id))?.applied_generation, 1)
})

t.test('a notification about an unknown load balancer does nothing', async t => {
  await notify(db, randomUUID())
  t.same(recorder.overlaps, [])
})
