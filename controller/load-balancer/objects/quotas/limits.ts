import type { Knex } from 'knex'
import { one } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { sqlState, type Transaction } from '../../../database/transaction.js'
import { ApiError, forbidden } from '../../../http/errors.js'

/** What quotas count: the name of the limit, the table of the objects, and what messages call them. */
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

/** Most objects of each kind; -1 is unlimited. */
export type Limits = Readonly<Record<Counted, number>>

/** A row of the quota table: null stands for the default. */
export type StoredLimits = Readonly<Record<Counted, number | null>>

/** A project's row as JSON, null when it has none, for statements that are sent anyway. */
export const storedLimits = (projectId: Fragment): Fragment =>
  sql`(SELECT to_jsonb(quota) FROM quota WHERE quota.project_id = ${projectId})`

/** What holds for a project: its own limits over the defaults. */
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
 * Refuses new rows of a table beyond the project's limit. Costs nothing without a limit; with one, the project's creates go on one by one
 * from here to the end of the transaction. The project's row is held after the load balancer's, never before it.
 * @param requested how many rows are about to come; 0 when they are in the table already
 * @throws ApiError 403 beyond the limit, 503 when other creates of the project hold its row too long
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
 * The same question without holding anything, for an answer that is an error in any case.
 * @throws ApiError 403 when no further object fits
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

/** For errors of statements that wait for a project's row. @throws ApiError 503 for a lock_timeout, otherwise the error itself */
export function rethrowBusy(error: unknown, projectId: string): never {
  if (sqlState(error) !== '55P03') throw error
  throw new ApiError(503, `The quota of project ${projectId} is being used by other requests. Please try again.`, {
    'Retry-After': '1',
  })
}
