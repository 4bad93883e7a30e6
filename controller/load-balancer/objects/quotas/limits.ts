import type { Knex } from 'knex'
import { one } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { sqlState, type Transaction } from '../../../database/transaction.js'
import { ApiError, forbidden } from '../../../http/errors.js'

/** Objects that quotas count: name of the limit, table, and label in messages. */
const COUNTED = {
  loadbalancer: { table: 'load_balancer', label: 'Load Balancer' },
  listener: { table: 'listener', label: 'Listener' },
  pool: { table: 'pool', label: 'Pool' },
  member: { table: 'member', label: 'Member' },
  healthmonitor: { table: 'health_monitor', label: 'Health Monitor' },
  l7policy: { table: 'l7_policy', label: 'L7 Policy' },
  l7rule: { table: 'l7_rule', label: 'L7 Rule' },
} as const

export type Counted = keyof typeof COUNTED
export type CountedTable = (typeof COUNTED)[Counted]['table']

export const COUNTED_RESOURCES = Object.keys(COUNTED) as Counted[]

/** Maximum number of objects of each kind; -1 is unlimited. */
export type Limits = Readonly<Record<Counted, number>>

/** A row of the quota table; null means the default. */
export type StoredLimits = Readonly<Record<Counted, number | null>>

/** SQL of a project's quota row as JSON, or null; for use in other statements. */
export const storedLimits = (projectId: Fragment): Fragment =>
  sql`(SELECT to_jsonb(quota) FROM quota WHERE quota.project_id = ${projectId})`

/** Limits of a project: its own, otherwise the defaults. */
export function effectiveLimits(stored: StoredLimits | null, defaults: Limits): Limits {
  if (stored === null) return defaults
  return {
    loadbalancer: stored.loadbalancer ?? defaults.loadbalancer,
    listener: stored.listener ?? defaults.listener,
    pool: stored.pool ?? defaults.pool,
    member: stored.member ?? defaults.member,
    healthmonitor: stored.healthmonitor ?? defaults.healthmonitor,
    l7policy: stored.l7policy ?? defaults.l7policy,
    l7rule: stored.l7rule ?? defaults.l7rule,
  }
}

/**
 * Rejects new rows of a table beyond the project's limit. Costs nothing without a limit. With one, locks the
 * project's quota row, so that the project's creates run one by one from here to the end of the transaction.
 * Lock order: the load balancer's row first, then the quota row.
 * @param requested number of rows to insert; 0 if they are already in the table
 * @throws ApiError 403 beyond the limit, 503 when other creates of the project keep its row locked too long
 */
export async function chargeQuota(
  trx: Transaction,
  { project_id, limits }: { project_id: string; limits: Limits },
  table: CountedTable,
  requested: number,
): Promise<void> {
  const resource = COUNTED_RESOURCES.find(name => COUNTED[name].table === table)
  if (resource === undefined || limits[resource] === -1) return
  const { inUse } = await one(
    trx,
    sql<{ inUse: number }>`SELECT held_quota_in_use(${project_id}, ${resource}) AS "inUse"`,
  ).catch(error => rethrowBusy(error, project_id))
  if (inUse + requested > limits[resource]) throw quotaMet(resource)
}

/**
 * Checks the quota without a lock, for a request that fails anyway.
 * @throws ApiError 403 when the quota is met
 */
export async function refuseIfQuotaMet(
  database: Knex,
  projectId: string,
  resource: Counted,
  defaults: Limits,
): Promise<void> {
  const { stored, inUse } = await one(
    database,
    sql<{ stored: StoredLimits | null; inUse: number }>`
      SELECT ${storedLimits(sql`p.id`)} AS stored, quota_in_use(p.id, ${resource}) AS "inUse"
        FROM (SELECT ${projectId}::text AS id) p`,
  )
  const limit = effectiveLimits(stored, defaults)[resource]
  if (limit !== -1 && inUse >= limit) throw quotaMet(resource)
}

const quotaMet = (resource: Counted) => forbidden(`Quota has been met for resources: ${COUNTED[resource].label}`)

/** For statements that lock a project's quota row. @throws ApiError 503 for a lock_timeout, otherwise the error */
export function rethrowBusy(error: unknown, projectId: string): never {
  if (sqlState(error) !== '55P03') throw error
  throw new ApiError(503, `The quota of project ${projectId} is in use by other requests. Try again.`, {
    'Retry-After': '1',
  })
}
