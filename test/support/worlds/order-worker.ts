import type { OrderExecutor } from '../../../controller/key-manager/orders/outcome.js'
import { executeKeyOrder } from '../../../controller/key-manager/orders/worker/key.js'
import { executePairOrder } from '../../../controller/key-manager/orders/worker/pair.js'
import { type OrderWorkerOptions, startOrderWorker } from '../../../controller/key-manager/orders/worker/worker.js'
import { createLog } from '../../../controller/log/log.js'
import { tokenOf } from '../clients/callers.js'
import type { Json } from '../clients/json-answers.js'
import type { TestKeyManager } from '../clients/key-manager-api.js'
import { eventually } from '../eventually.js'

const refuse: OrderExecutor = async () => ({ kind: 'failed', statusCode: '500', reason: 'no such executor here' })

/** The executors of a worker, without one for certificates. */
export const EXECUTORS = { key: executeKeyOrder, asymmetric: executePairOrder, certificate: refuse }

/** A worker of a test on the key manager's database; only wake-ups move it unless a sweep interval is given. */
export const startTestOrderWorker = (
  { database, databaseUrl, keyring }: TestKeyManager,
  options: Partial<OrderWorkerOptions> = {},
) =>
  startOrderWorker({
    database,
    databaseUrl,
    keyring,
    executors: EXECUTORS,
    config: { concurrency: 8, sweep_interval: 60 },
    log: createLog('test', 'silent'),
    ...options,
  })

/** Shortcuts for what tests do with orders. */
export const orderHelpers = ({ ask }: Pick<TestKeyManager, 'ask'>) => {
  const order = async (type: string, meta: unknown, token = tokenOf('member')): Promise<string> => {
    const reply = await ask('POST', '/v1/orders/', { type, meta }, { token })
    if (reply.status !== 202) throw new Error(`The order was not accepted: ${reply.status} ${reply.text}`)
    return String(reply.body.order_ref).slice(-36)
  }
  const show = async (id: string, token = tokenOf('member')): Promise<Json> =>
    (await ask('GET', `/v1/orders/${id}`, undefined, { token })).body
  return {
    order,
    show,
    /** The record once the order has ended. */
    ended: (id: string, token = tokenOf('member')): Promise<Json> =>
      eventually(
        `order ${id} has ended`,
        async () => {
          const record = await show(id, token)
          return (record.status === 'ACTIVE' || record.status === 'ERROR') && record
        },
        60_000,
      ),
  }
}

/** The path of a reference. */
export const pathOf = (reference: unknown): string => new URL(String(reference)).pathname
