import { randomUUID } from 'node:crypto'
import type { Database } from '../../../../database/connection.js'
import { execute, maybeOne } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import { ApiError } from '../../../../http/errors.js'
import { changeLoadBalancer } from '../../../../load-balancer/change/change.js'
import type { RequestDetail } from '../../../../load-balancer/change/events.js'
import { replaceOne } from '../../../../load-balancer/change/replace-amphorae.js'
import type { Service } from '../../../../load-balancer/schema/service.js'
import { markUpgrade } from '../../../../provider/amphora/act/mark-upgrade.js'
import type { Candidate, Upgrade } from './plan-upgrade.js'

/**
 * `generation`: the one that its load balancer must reach, if a replacement needs one. `left`: why the upgrade was not
 * begun, since the amphora has changed after it was planned.
 */
export type Begun = { generation: number | null } | { left: string }

const BEGUN: Begun = { generation: null }
const CHANGED: Begun = { left: 'it has changed meanwhile' }

/**
 * Begins an upgrade, which workers carry out. One that has begun already, before this command was interrupted, goes on.
 * @param bundle SHA-256 of the agent that upgrades in place bring
 */
export async function beginUpgrade(
  service: Pick<Service, 'database' | 'config'>,
  { amphora, way }: Upgrade,
  bundle: string,
): Promise<Begun> {
  const { id, loadBalancerId, replaceGeneration, upgradeTo } = amphora
  if (way === 'in place') {
    const isMarked = upgradeTo === bundle || (await markUpgrade(service.database, id, bundle))
    return isMarked ? BEGUN : CHANGED
  }
  if (replaceGeneration !== null) return { generation: replaceGeneration }
  if (loadBalancerId === null) return retire(service.database, id)
  try {
    return await changeLoadBalancer(service, detailOf(amphora), loadBalancerId, async (trx, changed) => {
      if (!(await replaceOne(trx, changed, id))) throw new NotThere()
      return { generation: changed.generation }
    })
  } catch (error) {
    if (error instanceof NotThere) return CHANGED
    if (error instanceof ApiError) return { left: 'its load balancer is being deleted' }
    throw error
  }
}

/** Ends the transaction: the load balancer has the amphora no more, and needs no change. */
class NotThere extends Error {}

/** Has housekeeping remove a warm amphora, and make another one. */
async function retire(database: Database, id: string): Promise<Begun> {
  await execute(
    database,
    sql`UPDATE amphora SET status = 'PENDING_DELETE', updated_at = now()
         WHERE id = ${id} AND status = 'READY' AND load_balancer_id IS NULL`,
  )
  const row = await maybeOne(
    database,
    sql<{ status: string; isWarm: boolean }>`
      SELECT status, load_balancer_id IS NULL AS "isWarm" FROM amphora WHERE id = ${id}`,
  )
  if (row === undefined || (row.isWarm && row.status === 'PENDING_DELETE')) return BEGUN
  return row.isWarm ? CHANGED : { left: 'a load balancer has taken it from the warm pool' }
}

/** For the history of the load balancer. */
const detailOf = ({ id }: Candidate): RequestDetail => ({
  action: 'failover',
  object_type: 'amphora',
  object_id: id,
  changes: {},
  user_id: '',
  user_name: 'krater amphora upgrade',
  project_id: null,
  request_id: `req-${randomUUID()}`,
})
