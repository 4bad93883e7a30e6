import type { Knex } from 'knex'
import { maybeOne, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { ShareExhausted } from '../driver.js'
import { lockQuota } from '../quota.js'
import type { SubnetFacts } from './subnets.js'

/** How addresses of shared networks are rationed. */
export type SharedAddresses = {
  /** Addresses at the end of each subnet's largest pool that are reserved for amphorae. */
  reserve: number
  /** Maximum percentage of a subnet's addresses that one project may hold. */
  project_share: number
}

/** SQL over a row of allocation_pool: the number of reserved addresses at its end. */
export const reservedSpan = (subnetId: string, reserve: number): Fragment =>
  sql`CASE WHEN first = (SELECT first FROM allocation_pool WHERE subnet_id = ${subnetId} ORDER BY span DESC, first DESC LIMIT 1)
           THEN least(${reserve}::bigint, span / 8) ELSE 0 END`

/** Whether the address is in the subnet's reserve. */
export async function isInReserve(trx: Knex, subnetId: string, address: string, reserve: number): Promise<boolean> {
  const row = await maybeOne(
    trx,
    sql`SELECT pool.last FROM (SELECT last, ${reservedSpan(subnetId, reserve)} AS reserved FROM allocation_pool WHERE subnet_id = ${subnetId}) pool
         WHERE CAST(${address} AS inet) > pool.last - pool.reserved AND CAST(${address} AS inet) <= pool.last`,
  )
  return row !== undefined
}

/**
 * Refuses another address to a project that holds its share of a shared network's subnet. The project that owns the
 * network has no such limit. Locks the project's quota: its creates run one by one until the transaction ends.
 * @throws ShareExhausted
 */
export async function requireShare(
  trx: Knex,
  { id, shared, network_project_id }: SubnetFacts,
  projectId: string,
  { project_share }: SharedAddresses,
): Promise<void> {
  if (!shared || projectId === network_project_id || project_share === 100) return
  await lockQuota(trx, projectId)
  const { held, share } = await one(
    trx,
    sql<{ held: number; share: number }>`
     SELECT (SELECT count(*)::float8 FROM fixed_ip JOIN port ON port.id = fixed_ip.port_id
              WHERE fixed_ip.subnet_id = ${id} AND port.project_id = ${projectId}) AS held,
            greatest(1, floor(sum(span) * ${project_share} / 100))::float8 AS share
       FROM allocation_pool WHERE subnet_id = ${id}`,
  )
  if (held < share) return
  throw new ShareExhausted(
    `Project ${projectId} holds ${held} addresses of subnet ${id}. One project may hold at most ${project_share} percent of a shared network’s subnet.`,
  )
}
