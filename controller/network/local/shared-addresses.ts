import type { Knex } from 'knex'
import { maybeOne, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { ShareUsedUp } from '../driver.js'
import { holdQuota } from '../quota.js'
import type { SubnetFacts } from './subnets.js'

/** How the addresses of a shared network are kept for everybody. */
export type SharedAddresses = {
  /** Addresses at the end of each subnet's largest pool that only amphorae get. */
  reserve: number
  /** Percent of a subnet that one project may hold. */
  project_share: number
}

/** SQL over a row of allocation_pool: how many addresses at its end are kept. */
export const keptOf = (subnetId: string, reserve: number): Fragment =>
  sql`CASE WHEN first = (SELECT first FROM allocation_pool WHERE subnet_id = ${subnetId} ORDER BY span DESC, first DESC LIMIT 1)
           THEN least(${reserve}::bigint, span / 8) ELSE 0 END`

/** Whether the reserve holds this address. */
export async function isKept(trx: Knex, subnetId: string, address: string, reserve: number): Promise<boolean> {
  const row = await maybeOne(
    trx,
    sql`SELECT pool.last FROM (SELECT last, ${keptOf(subnetId, reserve)} AS kept FROM allocation_pool WHERE subnet_id = ${subnetId}) pool
         WHERE CAST(${address} AS inet) > pool.last - pool.kept AND CAST(${address} AS inet) <= pool.last`,
  )
  return row !== undefined
}

/**
 * Refuses a further address to a project that holds its share of a shared network's subnet. The network's own project has no such limit.
 * Creates of one project go on one by one from here to the end of the transaction.
 * @throws ShareUsedUp
 */
export async function requireShare(
  trx: Knex,
  { id, shared, network_project_id }: SubnetFacts,
  projectId: string,
  { project_share }: SharedAddresses,
): Promise<void> {
  if (!shared || projectId === network_project_id || project_share === 100) return
  await holdQuota(trx, projectId)
  const { held, share } = await one(
    trx,
    sql<{ held: number; share: number }>`
     SELECT (SELECT count(*)::float8 FROM fixed_ip JOIN port ON port.id = fixed_ip.port_id
              WHERE fixed_ip.subnet_id = ${id} AND port.project_id = ${projectId}) AS held,
            greatest(1, floor(sum(span) * ${project_share} / 100))::float8 AS share
       FROM allocation_pool WHERE subnet_id = ${id}`,
  )
  if (held < share) return
  throw new ShareUsedUp(
    `Project ${projectId} has ${held} addresses of subnet ${id}: of a shared network one project may have ${project_share} percent.`,
  )
}
