import type { Knex } from 'knex'
import { type Fragment, identifier, sql } from '../../database/sql.js'
import { BATCH_SIZE, inBatches } from './batches.js'

export type Purged = { orders: number; containers: number; secrets: number }

const isOld = (alias: string, minDays: number): Fragment =>
  sql`${identifier(alias, 'deleted_at')} < now() - ${minDays} * interval '1 day'`

/** Orders that were deleted long ago, or whose result was. */
const oldOrders = (minDays: number): Fragment => sql`DELETE FROM secret_order WHERE id IN (
    SELECT o.id FROM secret_order o WHERE ${isOld('o', minDays)}
    UNION SELECT o.id FROM secret s JOIN secret_order o ON o.secret_id = s.id WHERE ${isOld('s', minDays)}
    UNION SELECT o.id FROM container c JOIN secret_order o ON o.container_id = c.id WHERE ${isOld('c', minDays)} LIMIT ${BATCH_SIZE})
  RETURNING id`

const oldContainers = (minDays: number): Fragment => sql`DELETE FROM container WHERE id IN (
    SELECT c.id FROM container c
     WHERE ${isOld('c', minDays)} AND NOT EXISTS (SELECT FROM secret_order o WHERE o.container_id = c.id) LIMIT ${BATCH_SIZE})
  RETURNING id`

const oldSecrets = (minDays: number): Fragment => sql`DELETE FROM secret WHERE id IN (
    SELECT s.id FROM secret s
     WHERE ${isOld('s', minDays)} AND NOT EXISTS (SELECT FROM secret_order o WHERE o.secret_id = s.id)
       AND NOT EXISTS (SELECT FROM container_secret r WHERE r.secret_id = s.id) LIMIT ${BATCH_SIZE})
  RETURNING id`

/**
 * Removes tombstones of objects deleted more than `minDays` days ago, referrers first.
 * @param minDays whole days; 0 removes all tombstones
 */
export async function purgeDeleted(database: Knex, minDays: number, signal?: AbortSignal): Promise<Purged> {
  const orders = await inBatches(database, oldOrders(minDays), signal)
  const containers = await inBatches(database, oldContainers(minDays), signal)
  const secrets = await inBatches(database, oldSecrets(minDays), signal)
  return { orders, containers, secrets }
}
