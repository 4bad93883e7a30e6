import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import type { ChangedLoadBalancer } from './change.js'

/**
 * Requests the replacement of every amphora of a load balancer. Skips roles with a replacement in progress: the
 * new amphora there is recent anyway, and repeated requests would otherwise never finish.
 */
export async function replaceAll(
  trx: Transaction,
  { id, generation }: Pick<ChangedLoadBalancer, 'id' | 'generation'>,
): Promise<void> {
  await execute(
    trx,
    sql`UPDATE amphora a SET replace_generation = ${generation}
      WHERE load_balancer_id = ${id} AND status <> 'PENDING_DELETE'
        AND NOT EXISTS (SELECT FROM amphora leaving
                         WHERE leaving.load_balancer_id = ${id} AND leaving.role = a.role
                           AND leaving.replace_generation IS NOT NULL AND leaving.status <> 'PENDING_DELETE')`,
  )
}

/** Requests the replacement of one amphora. @returns false when it does not exist or is already being deleted */
export async function replaceOne(
  trx: Transaction,
  { id, generation }: ChangedLoadBalancer,
  amphoraId: string,
): Promise<boolean> {
  const marked = await execute(
    trx,
    sql`UPDATE amphora SET replace_generation = coalesce(replace_generation, ${generation})
         WHERE id = ${amphoraId} AND load_balancer_id = ${id} AND status <> 'PENDING_DELETE'`,
  )
  return marked === 1
}
