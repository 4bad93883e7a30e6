import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { sql, trusted } from '../../database/sql.js'
import { type LoadBalancerTree, loadBalancerTree } from './tree.js'

const TREE = trusted(loadBalancerTree.sql)

/**
 * The whole tree of a load balancer, what is under deletion included, as one consistent snapshot: one statement. It is prepared, as to plan
 * it takes ten times as long as to run it.
 * @returns null when it is gone
 * @throws ZodError for a value that another version of this program has stored in a form that this one does not know
 */
export async function readTree(database: Knex, loadBalancerId: string): Promise<LoadBalancerTree | null> {
  const row = await maybeOne(
    database,
    sql<{ tree: unknown }>`SELECT ${TREE} AS tree FROM load_balancer WHERE load_balancer.id = ${loadBalancerId}`,
  )
  return row === undefined ? null : loadBalancerTree.form.parse(row.tree)
}
