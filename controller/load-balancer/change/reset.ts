import * as z from 'zod'
import type { Database } from '../../database/connection.js'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { immutable, missing } from '../schema/faults.js'
import { type Presented, selectObject } from '../schema/select.js'
import { inTransactionOn } from './change.js'
import { type RequestDetail, requestedEvent } from './events.js'
import { WAKE_CHANNEL } from './wake-channel.js'

/** Body of an administrator's reset; it may hold no other attribute. */
export const resetSchema = z.strictObject({
  provisioning_status: z.literal('ACTIVE', { error: 'Value should be one of: ACTIVE' }),
})

/**
 * Marks the newest generation as applied and clears the fault. Nothing leaks: a recheck is due at once and
 * applies what is missing, and objects under deletion stay so until their rows are deleted. The fence is raised
 * so that a worker cannot write a decision it made before the reset. Its lease is left to expire so that no
 * second worker acts at the same time.
 * @throws ApiError 404, or 409 when the load balancer is being deleted
 */
export async function resetStatus(database: Database, detail: RequestDetail, id: string): Promise<Presented> {
  return inTransactionOn(database, id, async trx => {
    const reset = await execute(
      trx,
      sql`WITH reset AS (
            UPDATE load_balancer
               SET applied_generation = generation, fault = NULL, fault_generation = NULL, fault_since = NULL, attempts = 0,
                   retry_at = NULL, recheck_at = now(), fence = fence + 1, updated_at = now()
             WHERE id = ${id} AND change <> 'delete' RETURNING id, generation),
          event AS (${requestedEvent(detail, sql`reset`)})
          SELECT pg_notify(${WAKE_CHANNEL}, id::text) FROM reset`,
    )
    const object = await selectObject(trx, loadBalancer, sql`o.id = ${id}`)
    if (object === undefined) throw missing('Load Balancer', id)
    if (reset === 0) throw immutable('Load Balancer', id)
    return object
  })
}
