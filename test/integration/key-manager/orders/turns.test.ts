import t from 'tap'
import type { OrderExecutor, OrderOutcome } from '../../../../controller/key-manager/orders/outcome.js'
import { ORDER_CHANNEL } from '../../../../controller/key-manager/orders/wake-channel.js'
import { attemptOrder } from '../../../../controller/key-manager/orders/worker/attempt.js'
import { claimsIn, secondsUntilDue } from '../../../../controller/key-manager/orders/worker/due.js'
import { recordFailure } from '../../../../controller/key-manager/orders/worker/settle.js'
import { storeResult } from '../../../../controller/key-manager/orders/worker/store-result.js'
import { claimDue } from '../../../../controller/queue/claim.js'
import { listenForWakeUps } from '../../../../controller/queue/wake-up.js'
import { tokenOf } from '../../../support/clients/callers.js'
import type { Json } from '../../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { quiet } from '../../../support/worlds/machines.js'
import { EXECUTORS, orderHelpers, startTestOrderWorker } from '../../../support/worlds/order-worker.js'
import { createGate } from '../../../support/worlds/worker-scene.js'

/** The order in which workers execute orders, and how orders share lanes. */

const keyManager = await startTestKeyManager()
const { database, databaseUrl, keyring, stop } = keyManager
const { order, ended } = orderHelpers(keyManager)
t.teardown(stop)

const AES = { algorithm: 'aes', bit_length: 256 }

/**
 * Runs workers until they have executed some number of orders. @returns project and name of each, in the order
 * of execution
 */
async function sequenceOf(orders: number, workers: number): Promise<string[]> {
  const done: string[] = []
  const key: OrderExecutor = async ({ projectId, meta }) => {
    done.push(`${projectId} ${meta.name}`)
    return { kind: 'failed', statusCode: '400', reason: 'as told' }
  }
  const options = { executors: { ...EXECUTORS, key }, config: { concurrency: 1, sweep_interval: 60 } }
  const started = await Promise.all(Array.from({ length: workers }, () => startTestOrderWorker(keyManager, options)))
  try {
    await eventually('all orders are executed', async () => done.length >= orders, 30_000)
  } finally {
    await Promise.all(started.map(worker => worker.stop()))
  }
  return done
}

t.test('a project with many orders does not delay others; its own orders run first in, first out', async t => {
  const names = Array.from({ length: 150 }, (_, at) => String(at))
  for (const name of names) await order('key', { ...AES, name }, tokenOf('member', 'many'))
  await order('key', { ...AES, name: 'one' }, tokenOf('member', 'few'))
  const done = await sequenceOf(151, 1)
  // Projects have equal chances: a later position happens once in 10^18 runs.
  t.ok(done.indexOf('few one') < 60, `at position ${done.indexOf('few one')}`)
  t.same(
    done.filter(each => each !== 'few one'),
    names.map(name => `many ${name}`),
  )
})

t.test('workers that claim one project’s orders at the same time miss none', async t => {
  const names = Array.from({ length: 100 }, (_, at) => String(at))
  for (const name of names) await order('key', { ...AES, name }, tokenOf('member', 'shared'))
  const done = await sequenceOf(100, 6)
  t.same(done.sort(), names.map(name => `shared ${name}`).sort(), 'each order once')
})

t.test('a project with orders in progress comes after projects with none', async t => {
  for (let made = 0; made < 6; made++) await order('key', AES, tokenOf('member', 'busy'))
  const claims = { ...claimsIn('quick', 'slow'), limit: 2 }
  t.equal((await claimDue(database, claims)).length, 2)
  for (let project = 0; project < 12; project++) {
    const id = await order('key', AES, tokenOf('member', `idle ${project}`))
    t.match(await claimDue(database, { ...claims, limit: 1 }), [{ id }])
  }
  await database('secret_order').delete()
})

t.test('slow key pair orders have their own lanes', async t => {
  const laneOf = async (algorithm: string, bit_length: number) => {
    const id = await order('asymmetric', { algorithm, bit_length })
    return (await database('secret_order').where({ id }).first()).lane
  }
  t.equal(await laneOf('rsa', 2048), 'primes')
  t.equal(await laneOf('RSA', 4096), 'large primes')
  t.equal(await laneOf('dsa', 3072), 'large primes')
  t.equal(await laneOf('ec', 256), 'quick')
  await database('secret_order').delete()
})

t.test('RSA certificate orders use the prime lanes, even when RSA is only the default', async t => {
  const laneOf = async (meta: Json) => {
    const id = await order('certificate', meta)
    return (await database('secret_order').where({ id }).first()).lane
  }
  const subject_dn = 'CN=x'
  t.equal(await laneOf({ subject_dn }), 'primes')
  t.equal(await laneOf({ subject_dn, bit_length: 2048, algorithm: '' }), 'primes')
  t.equal(await laneOf({ subject_dn, bit_length: 4096, algorithm: '' }), 'large primes')
  t.equal(await laneOf({ subject_dn, algorithm: 'RSA' }), 'primes')
  t.equal(await laneOf({ subject_dn, algorithm: 'ec' }), 'quick')
  t.equal(await laneOf({ request_data: 'x', subject_dn, algorithm: 'rsa' }), 'quick')
  t.equal(await laneOf({}), 'quick')
  await database('secret_order').delete()
})

const rowOf = (id: string) => database('secret_order').where({ id }).first()

/** Claims orders as a worker that then dies: their leases have expired. @returns their ids */
async function claimedByTheDead(limit = 8): Promise<string[]> {
  const claims = await claimDue(database, { ...claimsIn('quick', 'dead'), limit })
  const ids = claims.map(({ id }) => id)
  await database('secret_order')
    .whereIn('id', ids)
    .update({ lease_until: database.raw(`now() - interval '1 second'`) })
  return ids
}

t.test('an order on which five workers died ends in ERROR; four deaths do not stop it', async t => {
  const meta = { algorithm: 'ec', bit_length: 256, passphrase: 'correct horse' }
  const audits = (id: string) => database('audit_record').where({ target_id: id, action: 'order.fail' })
  const [four, five] = [await order('asymmetric', meta), await order('asymmetric', meta)]
  t.same((await claimedByTheDead()).sort(), [four, five].sort())
  for (let death = 2; death <= 9; death++) t.equal((await claimedByTheDead()).length, 1)
  t.match(await rowOf(five), { status: 'PROCESSING', lapsed_claims: 4 })
  // A starting worker releases the orders of dead workers on its machine. Those deaths count too.
  await database('secret_order').whereIn('id', [four, five]).update({ lease_owner: null, lease_until: null })
  await database('secret_order').where({ id: four }).update({ lapsed_claims: 3 })
  const tried: string[] = []
  const asymmetric: OrderExecutor = async (given, signal) => {
    tried.push(given.id)
    return EXECUTORS.asymmetric(given, signal)
  }
  const worker = await startTestOrderWorker(keyManager, { executors: { ...EXECUTORS, asymmetric } })
  t.match(await ended(five), { status: 'ERROR', error_status_code: '500', error_reason: /started 5 times/ })
  t.match(await ended(four), { status: 'ACTIVE' })
  await worker.stop()
  t.same(tried, [four])
  t.match(await rowOf(five), { sealed_passphrase: null, project_key_id: null, lease_owner: null })
  t.match(await audits(five), [{ outcome: 'failure', user_id: 'user-member', detail: { status: '500' } }])
  t.same(await audits(four), [])
})

t.test('orders claimed together with one that kills workers are retried one at a time', async t => {
  const together = [await order('key', AES), await order('key', AES), await order('key', AES)]
  t.equal((await claimedByTheDead()).length, 3)
  const fresh = [await order('key', AES), await order('key', AES)]
  // From now on, a claim takes only one of the three; other orders are not affected.
  const seen: string[] = []
  for (let claim = 0; claim < 3; claim++) {
    const ids = await claimedByTheDead()
    const again = ids.filter(id => together.includes(id))
    t.equal(again.length, 1)
    seen.push(...again)
    if (claim > 0) continue
    t.same(ids.filter(id => fresh.includes(id)).sort(), [...fresh].sort())
    await database('secret_order').whereIn('id', fresh).delete()
  }
  t.same(seen.sort(), [...together].sort(), 'the order with the fewest attempts comes first')
  const [held] = await claimDue(database, { ...claimsIn('quick', 'living'), limit: 8 })
  if (held === undefined) throw new Error('Nothing could be claimed')
  t.same(await claimedByTheDead(), [], 'no claim while another of the three is in progress')
  t.ok(((await secondsUntilDue(database, 'quick')) ?? 0) > 0, 'workers do not poll while it runs')
  const woken = new Set<string | null>()
  const wakeUps = await listenForWakeUps({
    databaseUrl,
    channel: ORDER_CHANNEL,
    onWake: lane => woken.add(lane),
    log: quiet,
  })
  t.teardown(wakeUps.stop)
  await attemptOrder({ database, keyring, executors: EXECUTORS, log: quiet }, held, new AbortController().signal)
  await eventually('all lanes are woken', async () => woken.has('quick') && woken.has('primes'))
  t.equal((await claimedByTheDead()).length, 1, 'the next of the three is claimed')
  await database('secret_order').whereIn('id', together).delete()
})

t.test('postponed and released attempts do not count as deaths', async t => {
  const gate = createGate()
  const later: OrderOutcome = { kind: 'later', seconds: 0, subStatus: '', subStatusMessage: '' }
  let calls = 0
  const key: OrderExecutor = async (given, signal) => {
    if (calls++ < 6) return later
    if (calls === 7) await gate.pass()
    return EXECUTORS.key(given, signal)
  }
  const options = { executors: { ...EXECUTORS, key } }
  const stopped = await startTestOrderWorker(keyManager, options)
  const id = await order('key', AES)
  await gate.arrived
  t.match(await rowOf(id), { retries: 6, lapsed_claims: 0 })
  await stopped.stop()
  const worker = await startTestOrderWorker(keyManager, options)
  t.match(await ended(id), { status: 'ACTIVE' })
  await worker.stop()
  t.match(await rowOf(id), { lapsed_claims: 0 })
})

t.test('storing a result again, or a failure after it, changes nothing', async t => {
  const id = await order('key', AES)
  const [claim] = await claimDue(database, { ...claimsIn('quick', 'deaf'), limit: 1 })
  if (claim === undefined) throw new Error('Nothing could be claimed')
  const { project_id: projectId, creator_id: creatorId, ...row } = await rowOf(id)
  const given = { id, projectId, creatorId }
  const order_ = { ...given, type: 'key' as const, meta: row.meta, passphrase: null, retries: 0 }
  const made = await EXECUTORS.key(order_, new AbortController().signal)
  if (made.kind !== 'made') throw new Error('The executor made no key')
  t.equal(await storeResult({ database, keyring }, claim, given, made), 'settled')
  const settled = await rowOf(id)
  t.equal(await storeResult({ database, keyring }, claim, given, made), 'lost')
  await recordFailure(database, claim, given, { kind: 'failed', statusCode: '500', reason: 'x' })
  t.same(await rowOf(id), settled)
})
