import type { Knex } from 'knex'
import { one } from '../database/query.js'
import { type Fragment, identifiers, sql } from '../database/sql.js'
import { ROUTER_PORT_OWNERS } from './driver.js'

/**
 * The rows each quota counts. Ports made by the load balancer service do not count: its own quotas bound them; nor do
 * ports of routers and floating IPs.
 */
const COUNTED = {
  network: sql`network`,
  subnet: sql`subnet`,
  port: sql`(SELECT project_id FROM port WHERE ensured_name IS NULL AND device_owner <> ALL(${ROUTER_PORT_OWNERS})) port`,
  router: sql`router`,
  floatingip: sql`floating_ip`,
  security_group: sql`security_group`,
  security_group_rule: sql`security_group_rule`,
} as const satisfies Record<string, Fragment>

export type Counted = keyof typeof COUNTED

export const COUNTED_RESOURCES = Object.keys(COUNTED) as Counted[]

/** Maximum number of objects of each kind; -1 is unlimited. */
export type Limits = Readonly<Record<Counted, number>>

/** A row of the quota table; null means the default. */
export type StoredLimits = Readonly<Record<Counted, number | null>>

/** The columns of the quota table that hold limits. */
export const LIMIT_COLUMNS = identifiers(COUNTED_RESOURCES)

/** A value for every counted kind of object. */
export const forEachCounted = <Value>(value: (resource: Counted) => Value): Record<Counted, Value> =>
  Object.fromEntries(COUNTED_RESOURCES.map(resource => [resource, value(resource)])) as Record<Counted, Value>

export const effectiveLimits = (stored: StoredLimits | undefined, defaults: Limits): Limits =>
  forEachCounted(resource => stored?.[resource] ?? defaults[resource])

/** The number of objects of this kind in the project. */
export async function inUse(database: Knex, projectId: string, resource: Counted): Promise<number> {
  const rows = COUNTED[resource]
  const { used } = await one(
    database,
    sql<{ used: number }>`SELECT count(*)::int AS used FROM ${rows} WHERE project_id = ${projectId}`,
  )
  return used
}

/**
 * Locks the project's row until the transaction ends. Later statements that count the project's objects or addresses
 * then see everything that earlier holders of the lock made.
 */
export async function lockQuota(trx: Knex, projectId: string): Promise<StoredLimits> {
  return one(
    trx,
    sql<StoredLimits>`
     INSERT INTO quota AS held (project_id) VALUES (${projectId})
     ON CONFLICT (project_id) DO UPDATE SET project_id = held.project_id RETURNING ${LIMIT_COLUMNS}`,
  )
}

/** @returns false if the project has reached its limit for objects of this kind */
export async function quotaAllows(trx: Knex, projectId: string, resource: Counted, defaults: Limits): Promise<boolean> {
  const limit = effectiveLimits(await lockQuota(trx, projectId), defaults)[resource]
  return limit === -1 || (await inUse(trx, projectId, resource)) < limit
}
