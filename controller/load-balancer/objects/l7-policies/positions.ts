import { execute } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Transaction } from '../../../database/transaction.js'

/**
 * The policies of a new listener in their order, each put where it asked to be among those before it; positions are 1..n then. Pure.
 */
export function arranged<T extends { position: number }>(policies: readonly T[]): T[] {
  const order: T[] = []
  for (const policy of policies) order.splice(policy.position - 1, 0, policy)
  return order.map((policy, index) => ({ ...policy, position: index + 1 }))
}

/**
 * Gives the policies of a listener that are not under deletion the positions 1..n again, in one statement. Others move without a change of
 * their status. The load balancer's row must be held.
 * @param moved one that takes a place: the others step aside. Its row is there already, if need be with a position beyond all others.
 * Without it, gaps are closed.
 */
export async function renumber(
  trx: Transaction,
  listenerId: string,
  moved: { id: string; position: number } | null = null,
): Promise<void> {
  // Odd ranks lie between the others' even ones: after the place that is taken when the policy comes from before it, else before it.
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
