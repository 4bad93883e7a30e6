import { z } from 'zod'
import type { Database } from '../../database/connection.js'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { immutable, missing } from '../schema/faults.js'
import { type Presented, selectObject } from '../schema/select.js'
import { inTransactionOn } from './change.js'
import { type Asked, requestedEvent } from './events.js'
import { WAKE_CHANNEL } from './wake-channel.js'

/** The body of an administrator's reset, which goes alone. */
export const resetSchema = z.strictObject({
  provisioning_status: z.literal('ACTIVE', { error: 'Value should be one of: ACTIVE' }),
})

/**
 * Counts the newest generation as applied and forgets the fault. Nothing leaks by it: a recheck is due at once, which makes true what is
 * not, and what is under deletion stays so until its rows are gone. The fence is raised, so that nothing that a worker decided before the
 * reset is written after it; its lease is left to end by itself, so that no second worker acts beside it.
 * @throws ApiError 404, or 409 when the load balancer itself is being deleted
 */
export async function resetStatus(database: Database, asked: Asked, id: string): Promise<Presented> {
  return inTransactionOn(database, id, async trx => {
    const reset = await execute(
      trx,
      sql`WITH reset AS (
            UPDATE load_balancer
               SET applied_generation = generation, fault = NULL, fault_generation = NULL, fault_since = NULL, attempts = 0,
                   retry_at = NULL, recheck_at = now(), fence = fence + 1, updated_at = now()
             WHERE id = ${id} AND change <> 'delete' RETURNING id, generation),
          noted AS (${requestedEvent(asked, sql`reset`)})
          SELECT pg_notify(${WAKE_CHANNEL}, id::text) FROM reset`,
    )
    const object = await selectObject(trx, loadBalancer, sql`o.id = ${id}`)
    if (object === undefined) throw missing('Load Balancer', id)
    if (reset === 0) throw immutable('Load Balancer', id)
    return object
  })
}
