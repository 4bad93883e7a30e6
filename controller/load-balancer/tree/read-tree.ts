import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { sql, trusted } from '../../database/sql.js'
import { type LoadBalancerTree, loadBalancerTree } from './tree.js'

const TREE = trusted(loadBalancerTree.sql)

/**
 * Reads the tree of a load balancer, including objects under deletion, as one consistent snapshot in one
 * statement. The statement is prepared, because planning takes ten times as long as execution.
 * @returns null when the load balancer does not exist
 * @throws ZodError for a value that another version stored in an unknown form
 */
export async function readTree(database: Knex, loadBalancerId: string): Promise<LoadBalancerTree | null> {
  const row = await maybeOne(
    database,
    sql<{ tree: unknown }>`SELECT ${TREE} AS tree FROM load_balancer WHERE load_balancer.id = ${loadBalancerId}`,
  )
  return row === undefined ? null : loadBalancerTree.form.parse(row.tree)
}
