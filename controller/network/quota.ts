import type { Knex } from 'knex'

/** What quotas count, with the rows that count: ports that the load balancer service makes are bounded by its own quotas. */
const COUNTED = {
  network: 'SELECT count(*)::int AS used FROM network WHERE project_id = ?',
  subnet: 'SELECT count(*)::int AS used FROM subnet WHERE project_id = ?',
  port: 'SELECT count(*)::int AS used FROM port WHERE project_id = ? AND ensured_name IS NULL',
} as const

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
  const { rows } = await database.raw(COUNTED[resource], [projectId])
  return (rows as { used: number }[])[0]?.used ?? 0
}

/**
 * Holds the project's row to the end of the transaction: what counts its objects or addresses in the statements that follow sees all that
 * earlier holders made.
 */
export async function holdQuota(trx: Knex, projectId: string): Promise<StoredLimits | undefined> {
  const { rows } = await trx.raw(
    `INSERT INTO quota AS held (project_id) VALUES (?)
     ON CONFLICT (project_id) DO UPDATE SET project_id = held.project_id RETURNING network, subnet, port`,
    [projectId],
  )
  return (rows as StoredLimits[])[0]
}

/** @returns false when the project may have no further object of this kind */
export async function hasRoom(trx: Knex, projectId: string, resource: Counted, defaults: Limits): Promise<boolean> {
  const limit = effectiveLimits(await holdQuota(trx, projectId), defaults)[resource]
  return limit === -1 || (await inUse(trx, projectId, resource)) < limit
}
