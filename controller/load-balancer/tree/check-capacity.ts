import type { Knex } from 'knex'
import { one } from '../../database/query.js'
import { type Fragment, sql, trusted } from '../../database/sql.js'
import { canMatch } from '../objects/pools/users.js'
import type { ProviderCapabilities } from '../schema/capabilities.js'
import { invalid } from '../schema/faults.js'
import type { Resource } from '../schema/resource.js'
import { type Presented, selectObjects } from '../schema/select.js'
import { type Demand, type MachineLimits, shareConnections } from './capacity.js'
import { shareFlows } from './flow-capacity.js'

/** Demand of a load balancer and limits of its machines; null until one has reported its limits. */
export type Capacity = {
  limits: MachineLimits | null
  demand: Demand
  /** Connection limits of the enabled UDP and SCTP listeners. */
  flowLimits: readonly number[]
}

const limits = (choose: 'min' | 'max', which: string) =>
  `(SELECT json_build_object('openFiles', ${choose}((a.limits->>'openFiles')::bigint),
                             'memoryBytes', ${choose}((a.limits->>'memoryBytes')::bigint),
                             'flows', ${choose}((a.limits->>'flows')::bigint))
      FROM amphora a WHERE a.limits IS NOT NULL AND ${which} HAVING count(*) > 0)`

/**
 * The smallest limits of its amphorae. A load balancer without amphorae gets the largest known limits: another
 * project's small amphora must not restrict it, and the worker later asks the actual machine.
 */
const LIMITS = `coalesce(${limits('min', 'a.load_balancer_id = lb.id')}, ${limits('max', 'true')})`

/** Pairs of listener and pool. A pool that no listener uses has no servers in HAProxy, and neither have UDP and SCTP. */
const SERVED = `SELECT l.id AS listener_id, l.default_pool_id AS pool_id FROM listener l
                 WHERE l.load_balancer_id = lb.id AND l.admin_state_up AND l.change <> 'delete' AND l.transport = 'tcp'
                 UNION
                SELECT y.listener_id, y.redirect_pool_id FROM l7_policy y JOIN listener l ON l.id = y.listener_id
                 WHERE y.load_balancer_id = lb.id AND l.admin_state_up AND l.change <> 'delete' AND ${canMatch('y')}`

const CHECKS = `SELECT count(*)::int FROM (${SERVED}) served
                  JOIN pool p ON p.id = served.pool_id AND p.admin_state_up AND p.change <> 'delete'
                  JOIN health_monitor h ON h.pool_id = p.id AND h.admin_state_up AND h.change <> 'delete'
                  JOIN member m ON m.pool_id = p.id AND m.change <> 'delete'`

const connectionLimits = (which: string) =>
  `(SELECT coalesce(json_agg(l.connection_limit), '[]'::json) FROM listener l
     WHERE l.load_balancer_id = lb.id AND l.admin_state_up AND l.change <> 'delete' AND ${which})`

const DEMAND = `json_build_object(
  'connectionLimits', ${connectionLimits(`l.transport = 'tcp'`)},
  'vips', 1 + jsonb_array_length(lb.additional_vips),
  'checks', (${CHECKS}))`

const CAPACITY = trusted(
  `SELECT json_build_object('limits', ${LIMITS}, 'demand', ${DEMAND}, 'flowLimits', ${connectionLimits(`l.transport <> 'tcp'`)})
     FROM load_balancer lb`,
)

/** SQL of the Capacity of a load balancer, null if the provider uses no machines; for use in other statements. */
export const capacityOf = ({ usesMachines }: ProviderCapabilities, loadBalancerId: string): Fragment =>
  usesMachines ? sql`(${CAPACITY} WHERE lb.id = ${loadBalancerId})` : sql`NULL`

/**
 * @param more number of checks to add
 * @throws ApiError 400 with the numbers that fit
 */
export function refuseExcess(capacity: Capacity | null, more = 0): void {
  if (capacity === null || capacity.limits === null) return
  const { limits, demand, flowLimits } = capacity
  const shares = shareConnections(limits, { ...demand, checks: demand.checks + more })
  const excess = 'excess' in shares ? shares.excess : shareFlows(limits, flowLimits).excess
  if (excess !== null) throw invalid(excess)
}

/**
 * Checks in a separate statement that a load balancer that this transaction has changed fits its machines.
 * @throws ApiError 400 with the numbers that fit
 */
export async function checkCapacity(trx: Knex, provider: ProviderCapabilities, loadBalancerId: string): Promise<void> {
  if (!provider.usesMachines) return
  const { capacity } = await one(
    trx,
    sql<{ capacity: Capacity | null }>`SELECT ${capacityOf(provider, loadBalancerId)} AS capacity`,
  )
  refuseExcess(capacity)
}

/** Whether an update enables a disabled object, and so may increase the demand. */
export const turnsOn = (
  stored: Readonly<{ admin_state_up?: unknown }>,
  values: Readonly<{ admin_state_up?: unknown }>,
): boolean => values.admin_state_up === true && stored.admin_state_up !== true

/** Whether an update sets a different pool, whose members need checks. */
export const changesPool = (stored: unknown, desired: unknown): boolean =>
  typeof desired === 'string' && desired !== stored

/**
 * Reads an object that this transaction has just written, and checks that its load balancer fits its machines,
 * in one statement.
 * @param raises whether the demand may have increased; otherwise the change is never rejected
 * @throws ApiError 400 with the numbers that fit
 */
export async function selectWithinCapacity(
  trx: Knex,
  provider: ProviderCapabilities,
  loadBalancerId: string,
  resource: Resource,
  id: string,
  raises = true,
): Promise<Presented> {
  const extra = capacityOf(provider, loadBalancerId)
  const [object] = await selectObjects<Capacity | null>(trx, resource, { where: sql`o.id = ${id}`, extra })
  if (object === undefined) throw new Error(`A ${resource.label} vanished while its load balancer was locked`)
  if (raises) refuseExcess(object.extra ?? null)
  return object
}
