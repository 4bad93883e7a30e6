import type { Database } from '../../../controller/database/connection.js'
import { sql } from '../../../controller/database/sql.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { type Claim, claimDue } from '../../../controller/queue/claim.js'
import { recordFault, settle } from '../../../controller/worker/settle.js'

/**
 * Leaves the state of a load balancer whose newest generation a worker has applied, with the worker's own
 * function.
 */
export async function settleNewest(database: Database, id: string): Promise<void> {
  const { claim, tree } = await claimOne(database, id)
  const settled = await settle(database, claim, tree)
  if (settled !== 'settled') throw new Error(`load balancer ${id}: ${settled}`)
}

/** Leaves the state of a load balancer whose newest generation a worker failed to apply. */
export async function failNewest(database: Database, id: string, code: string): Promise<void> {
  const { claim, tree } = await claimOne(database, id)
  const seconds = await recordFault(database, claim, tree, { code, text: `It is ${code}.` })
  if (seconds === null) throw new Error(`load balancer ${id}: the claim was lost`)
}

/** Claims as a worker does, but this load balancer, due or not. */
async function claimOne(database: Database, id: string): Promise<{ claim: Claim; tree: LoadBalancerTree }> {
  const [due, order] = [sql`t.id = ${id}`, sql`t.id`]
  const [claim] = await claimDue(database, { table: 'load_balancer', due, order, owner: 'test', limit: 1 })
  const tree = await readTree(database, id)
  if (claim === undefined || tree === null) throw new Error(`load balancer ${id} cannot be claimed`)
  return { claim, tree }
}
