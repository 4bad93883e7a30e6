import { type Fragment, sql, trusted } from '../../../database/sql.js'

/** SQL of the ids of listeners that use a pool, as default pool or through an enabled L7 policy with a rule. */
export const listenersUsingPool = (pool: Fragment): Fragment =>
  sql`SELECT id FROM listener WHERE default_pool_id = ${pool}
    UNION SELECT y.listener_id FROM l7_policy y WHERE y.redirect_pool_id = ${pool} AND ${trusted(canMatch('y'))}`

/** SQL: whether an L7 policy can ever match. */
export const canMatch = (policy: string): string =>
  `${policy}.admin_state_up AND ${policy}.change <> 'delete'
     AND EXISTS (SELECT FROM l7_rule WHERE l7_policy_id = ${policy}.id AND change <> 'delete')`
