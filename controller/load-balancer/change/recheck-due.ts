import { type Fragment, trusted } from '../../database/sql.js'

/**
 * SQL: a load balancer's recheck is not requested, or only for later.
 * @param loadBalancer alias of its table
 */
export const noRecheckDue = (loadBalancer: string): Fragment =>
  trusted(`coalesce(${loadBalancer}.recheck_at > now(), true)`)
