import t from 'tap'
import type { OrderExecutor } from '../../controller/key-manager/orders/outcome.js'
import { startTestKeyManager } from '../support/key-manager-api.js'
import { type Json, tokenOf } from '../support/load-balancer-api.js'
import { eventually } from '../support/load-balancer-rows.js'
import { EXECUTORS, orderWords, startTestOrderWorker } from '../support/order-worker.js'

/** Which order is carried out next, and in which company. */

const keyManager = await startTestKeyManager()
const { database, stop } = keyManager
const { order } = orderWords(keyManager)
t.teardown(stop)

const AES = { algorithm: 'aes', bit_length: 256 }

/** The projects of the orders in the sequence in which workers carry them out, until there are as many. */
async function sequenceOf(orders: number, workers: number): Promise<string[]> {
  const done: string[] = []
  const key: OrderExecutor = async ({ projectId, meta }) => {
    done.push(`${projectId} ${meta.name}`)
    return { kind: 'failed', statusCode: '400', reason: 'as told' }
  }
  const options = { executors: { ...EXECUTORS, key }, config: { concurrency: 1, sweep_interval: 60 } }
  const started = await Promise.all(Array.from({ length: workers }, () => startTestOrderWorker(keyManager, options)))
  try {
    await eventually('all orders are carried out', async () => done.length >= orders, 30_000)
  } finally {
    await Promise.all(started.map(worker => worker.stop()))
  }
  return done
}

t.test('a project with many orders does not keep others waiting; its own go in their order', async t => {
  const names = Array.from({ length: 150 }, (_, at) => String(at))
  for (const name of names) await order('key', { ...AES, name }, tokenOf('member', 'many'))
  await order('key', { ...AES, name: 'one' }, tokenOf('member', 'few'))
  const done = await sequenceOf(151, 1)
  // With even chances it is later once in 10^18 times.
  t.ok(done.indexOf('few one') < 60, `as number ${done.indexOf('few one')}`)
  t.same(
    done.filter(each => each !== 'few one'),
    names.map(name => `many ${name}`),
  )
})

t.test('workers that take orders of one project at once leave none over', async t => {
  const names = Array.from({ length: 100 }, (_, at) => String(at))
  for (const name of names) await order('key', { ...AES, name }, tokenOf('member', 'shared'))
  const done = await sequenceOf(100, 6)
  t.same(done.sort(), names.map(name => `shared ${name}`).sort(), 'each once')
})

t.test('RSA keys of certificate orders are among those that look for primes, named or not', async t => {
  const laneOf = async (meta: Json) => {
    const id = await order('certificate', meta)
    return (await database('secret_order').where({ id }).first()).lane
  }
  const subject_dn = 'CN=x'
  t.equal(await laneOf({ subject_dn }), 'primes')
  t.equal(await laneOf({ subject_dn, bit_length: 4096, algorithm: '' }), 'primes')
  t.equal(await laneOf({ subject_dn, algorithm: 'RSA' }), 'primes')
  t.equal(await laneOf({ subject_dn, algorithm: 'ec' }), 'quick')
  t.equal(await laneOf({ request_data: 'x', subject_dn, algorithm: 'rsa' }), 'quick')
  t.equal(await laneOf({}), 'quick')
})
