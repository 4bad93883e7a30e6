import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne } from '../../database/query.js'
import { assignments, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { COUNTED_RESOURCES, type Counted, hasRoom, holdQuota, inUse, type Limits, type StoredLimits } from '../quota.js'
import { clash, invalidRequest } from './neutron-error.js'

/** Where the limits of projects are kept. */
export type Quotas = {
  /** Undefined when none was set. */
  find: (projectId: string) => Promise<StoredLimits | undefined>
  list: () => Promise<(StoredLimits & { project_id: string })[]>
  used: (projectId: string, resource: Counted) => Promise<number>
  /** @param check refuses a limit below the use @throws NeutronError 400 */
  set: (projectId: string, limits: Partial<Limits>, check: boolean) => Promise<StoredLimits>
  /** @returns false when there was nothing to forget */
  reset: (projectId: string) => Promise<boolean>
}

const NOTHING: StoredLimits = { network: null, subnet: null, port: null }
const WAS_SET = sql`coalesce(network, subnet, port) IS NOT NULL`

/** Limits of our own tables. */
export function createQuotas(database: Database): Quotas {
  return {
    find: projectId =>
      maybeOne(
        database,
        sql<StoredLimits>`SELECT network, subnet, port FROM quota WHERE project_id = ${projectId} AND ${WAS_SET}`,
      ),
    list: () =>
      many(
        database,
        sql<StoredLimits & { project_id: string }>`
          SELECT project_id, network, subnet, port FROM quota WHERE ${WAS_SET} ORDER BY project_id`,
      ),
    used: (projectId, resource) => inUse(database, projectId, resource),
    set: (projectId, limits, check) =>
      inTransaction(database, async trx => {
        const held = await holdQuota(trx, projectId)
        if (check) await refuseBelowUse(trx, projectId, limits)
        if (Object.keys(limits).length > 0) {
          await execute(trx, sql`UPDATE quota SET ${assignments(limits)} WHERE project_id = ${projectId}`)
        }
        return { ...(held ?? NOTHING), ...limits }
      }),
    // The row stays, as creates of the project may be waiting for it.
    reset: async projectId =>
      (await execute(
        database,
        sql`UPDATE quota SET ${assignments(NOTHING)} WHERE project_id = ${projectId} AND ${WAS_SET}`,
      )) > 0,
  }
}

/** As the noop driver sees it: nothing is kept, and nothing is used. */
export const noopQuotas: Quotas = {
  find: async () => undefined,
  list: async () => [],
  used: async () => 0,
  set: async (_projectId, limits) => ({ ...NOTHING, ...limits }),
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

/** What holds for a project for which nothing else was set. */
export type QuotaSettings = { quota: Limits }

/** Refuses a new object beyond the project's limit, exactly, however many are made at once. @throws NeutronError 409 */
export async function chargeQuota(trx: Knex, projectId: string, resource: Counted, defaults: Limits): Promise<void> {
  if (await hasRoom(trx, projectId, resource, defaults)) return
  throw clash('OverQuota', `Quota exceeded for resources: ['${resource}'].`)
}
