import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne } from '../../database/query.js'
import { assignments, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import {
  COUNTED_RESOURCES,
  type Counted,
  forEachCounted,
  inUse,
  LIMIT_COLUMNS,
  type Limits,
  lockQuota,
  quotaAllows,
  type StoredLimits,
} from '../quota.js'
import { conflict, invalidRequest } from './neutron-error.js'

/** Stores the limits of projects. */
export type Quotas = {
  /** Undefined if no limit is set. */
  find: (projectId: string) => Promise<StoredLimits | undefined>
  list: () => Promise<(StoredLimits & { project_id: string })[]>
  used: (projectId: string, resource: Counted) => Promise<number>
  /** @param check whether to refuse a limit below the current usage @throws NeutronError 400 */
  set: (projectId: string, limits: Partial<Limits>, check: boolean) => Promise<StoredLimits>
  /** @returns false if no limit was set */
  reset: (projectId: string) => Promise<boolean>
}

const UNSET: StoredLimits = forEachCounted(() => null)
const IS_SET = sql`coalesce(${LIMIT_COLUMNS}) IS NOT NULL`

/** Limits in Krater's own tables. */
export function createQuotas(database: Database): Quotas {
  return {
    find: projectId =>
      maybeOne(
        database,
        sql<StoredLimits>`SELECT ${LIMIT_COLUMNS} FROM quota WHERE project_id = ${projectId} AND ${IS_SET}`,
      ),
    list: () =>
      many(
        database,
        sql<StoredLimits & { project_id: string }>`
          SELECT project_id, ${LIMIT_COLUMNS} FROM quota WHERE ${IS_SET} ORDER BY project_id`,
      ),
    used: (projectId, resource) => inUse(database, projectId, resource),
    set: (projectId, limits, check) =>
      inTransaction(database, async trx => {
        const stored = await lockQuota(trx, projectId)
        if (check) await refuseBelowUse(trx, projectId, limits)
        if (Object.keys(limits).length > 0) {
          await execute(trx, sql`UPDATE quota SET ${assignments(limits)} WHERE project_id = ${projectId}`)
        }
        return { ...(stored ?? UNSET), ...limits }
      }),
    // Keep the row: the project's creates may be waiting for its lock.
    reset: async projectId =>
      (await execute(
        database,
        sql`UPDATE quota SET ${assignments(UNSET)} WHERE project_id = ${projectId} AND ${IS_SET}`,
      )) > 0,
  }
}

/** For the noop driver: stores nothing and reports no usage. */
export const noopQuotas: Quotas = {
  find: async () => undefined,
  list: async () => [],
  used: async () => 0,
  set: async (_projectId, limits) => ({ ...UNSET, ...limits }),
  reset: async () => true,
}

async function refuseBelowUse(trx: Knex, projectId: string, limits: Partial<Limits>): Promise<void> {
  for (const resource of COUNTED_RESOURCES) {
    const limit = limits[resource]
    if (limit === undefined || limit === -1) continue
    const used = await inUse(trx, projectId, resource)
    if (limit >= used) continue
    throw invalidRequest(
      `Quota limit ${limit} for ${resource} must be greater than or equal to already used and reserved ${used}.`,
    )
  }
}

/** Limits of projects without limits of their own. */
export type QuotaSettings = { quota: Limits }

/** Refuses an object beyond the project's limit, exactly, even with concurrent creates. @throws NeutronError 409 */
export async function chargeQuota(trx: Knex, projectId: string, resource: Counted, defaults: Limits): Promise<void> {
  if (await quotaAllows(trx, projectId, resource, defaults)) return
  throw conflict('OverQuota', `Quota exceeded for resources: ['${resource}'].`)
}
