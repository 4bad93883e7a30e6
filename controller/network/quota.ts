import type { Knex } from 'knex'
import { one } from '../database/query.js'
import { type Fragment, sql } from '../database/sql.js'

/** What quotas count, with the rows that count: ports that the load balancer service makes are bounded by its own quotas. */
const COUNTED = {
  network: sql`network`,
  subnet: sql`subnet`,
  port: sql`(SELECT project_id FROM port WHERE ensured_name IS NULL) port`,
} as const satisfies Record<string, Fragment>

export type Counted = keyof typeof COUNTED

export const COUNTED_RESOURCES = Object.keys(COUNTED) as Counted[]

/** Most objects of each kind; -1 is unlimited. */
export type Limits = Readonly<Record<Counted, number>>

/** A row of the quota table: null stands for the default. */
export type StoredLimits = Readonly<Record<Counted, number | null>>

export const effectiveLimits = (stored: StoredLimits | undefined, defaults: Limits): Limits => ({
  network: stored?.network ?? defaults.network,
  subnet: stored?.subnet ?? defaults.subnet,
  port: stored?.port ?? defaults.port,
})

/** How many objects of a kind the project has. */
export async function inUse(database: Knex, projectId: string, resource: Counted): Promise<number> {
  const rows = COUNTED[resource]
  const { used } = await one(
    database,
    sql<{ used: number }>`SELECT count(*)::int AS used FROM ${rows} WHERE project_id = ${projectId}`,
  )
  return used
}

/**
 * Holds the project's row to the end of the transaction: what counts its objects or addresses in the statements that follow sees all that
 * earlier holders made.
 */
export async function holdQuota(trx: Knex, projectId: string): Promise<StoredLimits> {
  return one(
    trx,
    sql<StoredLimits>`
     INSERT INTO quota AS held (project_id) VALUES (${projectId})
     ON CONFLICT (project_id) DO UPDATE SET project_id = held.project_id RETURNING network, subnet, port`,
  )
}

/** @returns false when the project may have no further object of this kind */
export async function hasRoom(trx: Knex, projectId: string, resource: Counted, defaults: Limits): Promise<boolean> {
  const limit = effectiveLimits(await holdQuota(trx, projectId), defaults)[resource]
  return limit === -1 || (await inUse(trx, projectId, resource)) < limit
}
