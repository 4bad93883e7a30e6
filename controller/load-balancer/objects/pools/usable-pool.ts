import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Transaction } from '../../../database/transaction.js'
import { immutable, missing } from '../../schema/faults.js'

/**
 * Finds a pool that a listener or policy of this load balancer may use. Any other counts as missing.
 * @throws ApiError 404, or 409 when it is being deleted
 */
export async function usablePool(
  trx: Transaction,
  loadBalancerId: string,
  id: string,
): Promise<{ id: string; protocol: string }> {
  const pool = await maybeOne(
    trx,
    sql<{ id: string; protocol: string; change: string }>`
      SELECT id, protocol, change FROM pool WHERE id = ${id} AND load_balancer_id = ${loadBalancerId}`,
  )
  if (pool === undefined) throw missing('Pool', id)
  if (pool.change === 'delete') throw immutable('Pool', id)
  return pool
}
