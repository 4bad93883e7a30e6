import { execute } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Transaction } from '../../../database/transaction.js'

/**
 * Orders the policies of a new listener: inserts each at its position among those before it, and numbers them
 * 1..n. Pure.
 */
export function orderPolicies<T extends { position: number }>(policies: readonly T[]): T[] {
  const order: T[] = []
  for (const policy of policies) order.splice(policy.position - 1, 0, policy)
  return order.map((policy, index) => ({ ...policy, position: index + 1 }))
}

/**
 * Renumbers the policies of a listener that are not under deletion to 1..n, in one statement. This does not
 * change the status of other policies. The load balancer's row must be locked.
 * @param moved a stored policy that takes a position and shifts the others; without it, only gaps are closed
 */
export async function renumber(
  trx: Transaction,
  listenerId: string,
  moved: { id: string; position: number } | null = null,
): Promise<void> {
  // The moved policy gets an odd rank between the even ranks of the others: after the policy at its new
  // position if it moves down the list, otherwise before it.
  const [id, position] = [moved?.id ?? null, moved?.position ?? 0]
  await execute(
    trx,
    sql`UPDATE l7_policy o SET position = ranked.position
       FROM (SELECT id, row_number() OVER (ORDER BY
                      CASE WHEN id = ${id} THEN 2 * ${position}::bigint + CASE WHEN ${position} > position THEN 1 ELSE -1 END
                           ELSE 2 * position::bigint END, id) AS position
               FROM l7_policy WHERE listener_id = ${listenerId} AND change <> 'delete') ranked
      WHERE o.id = ranked.id AND o.position <> ranked.position`,
  )
}
