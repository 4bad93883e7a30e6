import { randomUUID } from 'node:crypto'
import { configurationSchema } from '../../../controller/config/schema.js'
import type { Database } from '../../../controller/database/connection.js'
import { inTransaction, type Transaction } from '../../../controller/database/transaction.js'
import {
  type ChangedLoadBalancer,
  changeLoadBalancer as changeAsApi,
  deleteLoadBalancer,
} from '../../../controller/load-balancer/change/change.js'
import type { RequestDetail } from '../../../controller/load-balancer/change/events.js'
import { storeObjects } from '../../../controller/load-balancer/change/store.js'
import { WAKE_CHANNEL } from '../../../controller/load-balancer/change/wake-channel.js'
import { effectiveLimits } from '../../../controller/load-balancer/objects/quotas/limits.js'
import { loadBalancerCreateSchema } from '../../../controller/load-balancer/tree/nested.js'
import { planObjects } from '../../../controller/load-balancer/tree/new-objects.js'
import type { Change } from '../../../controller/load-balancer/tree/tree.js'

/** The columns of load_balancer that the worker's tests read. */
export type LoadBalancerRow = {
  id: string
  generation: number
  applied_generation: number
  change: Change
  fault: { code: string; text: string } | null
  fault_generation: number | null
  fault_since: Date | null
  attempts: number
  retry_at: Date | null
  recheck_at: Date | null
  lease_owner: string | null
  lease_until: Date | null
  fence: number
  vip_port_id: string | null
}

/** The row of a load balancer without a claim; `columns` set any state, however a worker left it. */
export async function insertLoadBalancer(database: Database, columns: Record<string, unknown> = {}): Promise<string> {
  const id = randomUUID()
  await database('load_balancer').insert({
    id,
    project_id: 'a'.repeat(32),
    provider: 'recording',
    topology: 'SINGLE',
    vip_address: '203.0.113.10',
    owns_vip_port: true,
    ...columns,
  })
  return id
}

export async function notify(database: Database, id: string): Promise<void> {
  await database.raw('SELECT pg_notify(?, ?)', [WAKE_CHANNEL, id])
}

const { load_balancer: config } = configurationSchema.parse({})

/** The requester of a test's changes in the history. */
const asked = (action: 'update' | 'delete', id: string): RequestDetail => ({
  ...{ action, object_type: 'loadbalancer', object_id: id, changes: {} },
  ...{ user_id: 'u', user_name: 'u', project_id: 'a'.repeat(32), request_id: 'req-test' },
})

/**
 * Changes a load balancer's tree as every accepted request does, with the API's own function.
 * @param body makes further changes in the same transaction
 * @returns what the body returns
 */
export const changeTree = <T>(
  database: Database,
  id: string,
  body: (trx: Transaction, loadBalancer: ChangedLoadBalancer) => Promise<T>,
): Promise<T> => changeAsApi({ database, config }, asked('update', id), id, body)

/** Raises the generation with an update or a deletion. @returns the new generation */
export async function changeLoadBalancer(
  database: Database,
  id: string,
  change: 'update' | 'delete' = 'update',
): Promise<number> {
  if (change === 'update') return changeTree(database, id, async (_, { generation }) => generation)
  return inTransaction(database, async trx => {
    await deleteLoadBalancer(trx, asked('delete', id), id)
    return (await trx('load_balancer').where({ id }).first<{ generation: number }>('generation')).generation
  })
}

export async function findLoadBalancer(database: Database, id: string): Promise<LoadBalancerRow | undefined> {
  return database('load_balancer').where({ id }).first<LoadBalancerRow | undefined>()
}

/** Stores a pool with members and a monitor, and a listener that uses it, at a generation, as the API stores new objects. */
export async function insertChildren(
  database: Database,
  loadBalancerId: string,
  generation: number,
  members: { address: string; subnetId?: string | null }[] = [],
): Promise<{ listenerId: string; poolId: string; monitorId: string; memberIds: string[] }> {
  const { pools, listeners } = await loadBalancerCreateSchema.parseAsync({
    vip_subnet_id: randomUUID(),
    listeners: [{ protocol: 'HTTP', protocol_port: 80, default_pool: { name: 'pool' } }],
    pools: [
      {
        ...{ name: 'pool', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
        members: members.map(({ address, subnetId = null }) => ({ address, protocol_port: 80, subnet_id: subnetId })),
        healthmonitor: { type: 'TCP', delay: 5, timeout: 3, max_retries: 2, max_retries_down: 3 },
      },
    ],
  })
  const objects = planObjects(listeners, pools, config)
  const limits = effectiveLimits(null, config.quota)
  const above = { id: loadBalancerId, project_id: 'a'.repeat(32), generation, limits }
  await inTransaction(database, trx => storeObjects(trx, above, objects))
  const [{ id: listenerId }, pool] = [objects.listeners[0]!, objects.pools[0]!]
  const memberIds = pool.members.map(({ id }) => id)
  return { listenerId, poolId: pool.id, monitorId: pool.monitor!.id, memberIds }
}
