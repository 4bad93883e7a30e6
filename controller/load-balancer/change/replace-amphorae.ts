import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import type { ChangedLoadBalancer } from './change.js'

/**
 * Asks for another amphora in the place of each that a load balancer has. A role in which one is being replaced at this moment is left
 * alone: what is made there is new anyway, and asking again and again would never come to an end.
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

/** Asks for another amphora in the place of this one. @returns false when it is not there, or on its way out already */
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
