import type { Knex } from 'knex'
import type { Database } from '../database/connection.js'
import { inTransaction, type Transaction } from '../database/transaction.js'
import { immutable, missing } from './faults.js'
import type { Resource } from './resource.js'
import { WAKE_CHANNEL } from './wake-channel.js'

/** A load balancer whose row this transaction holds, with the generation that the change at hand gives it. */
export type ChangedLoadBalancer = {
  id: string
  project_id: string
  provider: string
  generation: number
  applied_generation: number
}

/**
 * Changes something in a load balancer's tree, in one transaction that holds the load balancer's row, so that changes of one
 * tree follow each other. It raises the generation, ends any back-off and wakes the workers when it commits. A change while another is under
 * way is accepted; only a load balancer under deletion takes none.
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function changeLoadBalancer<T>(
  database: Database,
  id: string,
  body: (trx: Transaction, loadBalancer: ChangedLoadBalancer) => Promise<T>,
): Promise<T> {
  return inTransaction(database, async trx => body(trx, await raiseGeneration(trx, id)))
}

/**
 * Writes new values of a load balancer itself, as a change of its tree.
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function updateLoadBalancer(
  trx: Transaction,
  id: string,
  columns: Readonly<Record<string, unknown>>,
): Promise<void> {
  await raiseGeneration(trx, id)
  if (Object.keys(columns).length > 0) await trx('load_balancer').where({ id }).update(columns)
}

async function raiseGeneration(trx: Transaction, id: string): Promise<ChangedLoadBalancer> {
  const { rows } = await trx.raw(
    `UPDATE load_balancer SET ${raised('update')} WHERE id = ? AND change <> 'delete'
     RETURNING id, project_id, provider, generation, applied_generation, pg_notify(?, id::text)`,
    [id, WAKE_CHANNEL],
  )
  const [loadBalancer] = rows as ChangedLoadBalancer[]
  if (loadBalancer !== undefined) return loadBalancer
  const gone = (await trx('load_balancer').where({ id }).first('id')) === undefined
  throw gone ? missing('Load Balancer', id) : immutable('Load Balancer', id)
}

/** SET clause that makes the present row of load_balancer the newest generation. What is still being created stays that. */
export function raised(change: 'update' | 'delete'): string {
  const kind =
    change === 'delete'
      ? `'delete'`
      : `CASE WHEN change = 'create' AND generation > applied_generation THEN 'create' ELSE 'update' END`
  return `generation = generation + 1, change = ${kind}, attempts = 0, retry_at = NULL, updated_at = now()`
}

/** SET clause that stamps a row below a load balancer as touched by its present change; binds generation, applied generation. */
const TOUCHED = `generation = ?, change = CASE WHEN change = 'create' AND generation > ? THEN 'create' ELSE 'update' END, updated_at = now()`

const generationsOf = ({ generation, applied_generation }: ChangedLoadBalancer) => [generation, applied_generation]

/**
 * Writes new values of one object and stamps it.
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function updateObject(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  { table, label }: Resource,
  id: string,
  columns: Readonly<Record<string, unknown>>,
): Promise<void> {
  const changed = await trx(table)
    .where({ id, load_balancer_id: loadBalancer.id })
    .whereNot({ change: 'delete' })
    .update({
      ...columns,
      generation: loadBalancer.generation,
      change: trx.raw(`CASE WHEN change = 'create' AND generation > ? THEN 'create' ELSE 'update' END`, [
        loadBalancer.applied_generation,
      ]),
      updated_at: trx.fn.now(),
    })
  if (changed === 1) return
  const gone = (await trx(table).where({ id }).first('id')) === undefined
  throw gone ? missing(label, id) : immutable(label, id)
}

/** Marks objects as under deletion; their rows go when that is applied. */
export async function markDeleted(
  trx: Transaction,
  { generation }: ChangedLoadBalancer,
  { table }: Resource,
  ids: readonly string[],
): Promise<void> {
  await trx.raw(`UPDATE ?? SET generation = ?, change = 'delete', updated_at = now() WHERE id = ANY(?::uuid[])`, [
    table,
    generation,
    [...ids],
  ])
}

/** What a change of a pool's members or monitor must know of the pool. */
export type TouchedPool = { id: string; protocol: string; last_server_number: number; monitored: boolean }

/**
 * Stamps a pool and every listener that uses it, because something in the pool changes.
 * @param newMembers how many server numbers to take; the last of them is last_server_number
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function touchPool(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  poolId: string,
  newMembers = 0,
): Promise<TouchedPool> {
  const { rows } = await trx.raw(
    `WITH users AS (UPDATE listener SET ${TOUCHED} WHERE default_pool_id = ? AND change <> 'delete')
     UPDATE pool o SET ${TOUCHED}, last_server_number = last_server_number + ?
      WHERE id = ? AND change <> 'delete'
     RETURNING id, protocol, last_server_number,
               EXISTS (SELECT FROM health_monitor h WHERE h.pool_id = o.id AND h.change <> 'delete') AS monitored`,
    [...generationsOf(loadBalancer), poolId, ...generationsOf(loadBalancer), newMembers, poolId],
  )
  const [pool] = rows as TouchedPool[]
  if (pool !== undefined) return pool
  const gone = (await trx('pool').where({ id: poolId }).first('id')) === undefined
  throw gone ? missing('Pool', poolId) : immutable('Pool', poolId)
}

/** Stamps the listeners that use a pool, and writes `columns` to them. */
export async function touchListenersOf(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  poolId: string,
  columns: '' | ', default_pool_id = NULL' = '',
): Promise<void> {
  await trx.raw(`UPDATE listener SET ${TOUCHED}${columns} WHERE default_pool_id = ? AND change <> 'delete'`, [
    ...generationsOf(loadBalancer),
    poolId,
  ])
}

/**
 * Inserts rows with the stamp of the present change, as one statement.
 * @returns the first row that another one's unique index kept out, or undefined when all went in
 */
export async function insertRows<T extends { id: string }>(
  trx: Knex,
  { generation }: Pick<ChangedLoadBalancer, 'generation'>,
  table: string,
  rows: readonly T[],
): Promise<T | undefined> {
  if (rows.length === 0) return undefined
  const stamped = rows.map(row => ({ ...row, generation, change: 'create' }))
  const inserted: { id: string }[] = await trx(table).insert(stamped).onConflict().ignore().returning('id')
  if (inserted.length === rows.length) return undefined
  const ids = new Set(inserted.map(({ id }) => id))
  return rows.find(({ id }) => !ids.has(id))
}
