import { randomUUID } from 'node:crypto'
import type { Database } from '../../../controller/database/connection.js'
import { WAKE_CHANNEL } from '../../../controller/load-balancer/change/wake-channel.js'
import type { Change } from '../../../controller/load-balancer/tree/tree.js'

/** The columns of load_balancer that the worker's tests look at. */
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

/** A load balancer as the API stores one. */
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

/** Raises the generation, as every accepted request does, and wakes the workers. @returns the new generation */
export async function changeLoadBalancer(
  database: Database,
  id: string,
  change: Change = 'update',
  columns: Record<string, unknown> = {},
): Promise<number> {
  const [row] = await database('load_balancer')
    .where({ id })
    .update({ generation: database.raw('generation + 1'), change, retry_at: null, attempts: 0, ...columns })
    .returning<{ generation: number }[]>('generation')
  await notify(database, id)
  return row!.generation
}

export async function findLoadBalancer(database: Database, id: string): Promise<LoadBalancerRow | undefined> {
  return database('load_balancer').where({ id }).first<LoadBalancerRow | undefined>()
}

/** Stores a pool with members and a monitor, and a listener that uses it, at a generation. */
export async function insertChildren(
  database: Database,
  loadBalancerId: string,
  generation: number,
  members: { address: string; subnetId?: string | null }[] = [],
): Promise<{ listenerId: string; poolId: string; monitorId: string; memberIds: string[] }> {
  const [listenerId, poolId, monitorId] = [randomUUID(), randomUUID(), randomUUID()]
  const common = { load_balancer_id: loadBalancerId, project_id: 'a'.repeat(32), generation }
  await database('pool').insert({ ...common, id: poolId, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' })
  await database('listener').insert({
    ...common,
    id: listenerId,
    protocol: 'HTTP',
    transport: 'tcp',
    protocol_port: 80,
    default_pool_id: poolId,
  })
  const memberIds: string[] = []
  for (const [index, { address, subnetId = null }] of members.entries()) {
    const id = randomUUID()
    memberIds.push(id)
    await database('member').insert({
      ...common,
      id,
      pool_id: poolId,
      server_number: index + 1,
      address,
      protocol_port: 80,
      subnet_id: subnetId,
      operating_status: 'OFFLINE',
    })
  }
  await database('health_monitor').insert({
    ...common,
    id: monitorId,
    pool_id: poolId,
    type: 'TCP',
    delay: 5,
    timeout: 3,
    max_retries: 2,
    max_retries_down: 3,
  })
  return { listenerId, poolId, monitorId, memberIds }
}

/** Asks again and again until the answer is neither null, undefined nor false; throws after the limit. */
export async function eventually<T>(
  what: string,
  ask: () => Promise<T | null | undefined | false> | T | null | undefined | false,
  limitMs = 10_000,
): Promise<T> {
  const until = performance.now() + limitMs
  for (;;) {
    const answer = await ask()
    if (answer !== null && answer !== undefined && answer !== false) return answer
    if (performance.now() > until) throw new Error(`${what}: not within ${limitMs} ms`)
    await new Promise(resolve => setTimeout(resolve, 10))
  }
}
