import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Transaction } from '../../../database/transaction.js'
import { immutable, missing } from '../../schema/faults.js'
import type { UsedPool } from '../listeners/rules.js'

/**
 * Finds a pool that a listener or policy of this load balancer may use. Any other counts as missing.
 * @throws ApiError 404, or 409 when it is being deleted
 */
export async function usablePool(
  trx: Transaction,
  loadBalancerId: string,
  id: string,
): Promise<UsedPool & { id: string }> {
  const pool = await maybeOne(
    trx,
    sql<UsedPool & { id: string; change: string }>`
      SELECT id, protocol, session_persistence, change FROM pool WHERE id = ${id} AND load_balancer_id = ${loadBalancerId}`,
  )
  if (pool === undefined) throw missing('Pool', id)
  if (pool.change === 'delete') throw immutable('Pool', id)
  return pool
}
