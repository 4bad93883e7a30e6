import { execute } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import type { OrderExecutor } from '../../../controller/key-manager/orders/outcome.js'
import { executeKeyOrder } from '../../../controller/key-manager/orders/worker/key.js'
import { executePairOrder } from '../../../controller/key-manager/orders/worker/pair.js'

/** A key and, in the same transaction, something else, as certificate orders do. */
const withMore: OrderExecutor = async (order, signal) => {
  const outcome = await executeKeyOrder(order, signal)
  if (outcome.kind !== 'made') return outcome
  return {
    ...outcome,
    alsoStore: async trx => void (await execute(trx, sql`INSERT INTO project (id) VALUES (${`also ${order.id}`})`)),
  }
}

/** The executors of workers that are killed, and of those that continue. */
export const CRASH_EXECUTORS = { key: withMore, asymmetric: executePairOrder, certificate: withMore }
