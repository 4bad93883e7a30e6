import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { inTransaction } from '../../database/transaction.js'
import { deleteExpiredSecrets } from './expire.js'
import { type Purged, purgeDeleted } from './purge.js'
import { removeUnusedProjectKeys } from './unused-keys.js'

export type Cleaning = {
  /** See purgeDeleted. */
  minDays: number
  /** Whether secrets past their time are deleted. */
  expired: boolean
  /** Whether keys of projects that have nothing any more are removed. */
  unusedProjects: boolean
}

/** How many rows went; null for what was not asked for. */
export type Cleaned = { expired: number | null; purged: Purged; projectKeys: number | null }

/** Cleans once. */
export async function clean(database: Knex, { minDays, expired, unusedProjects }: Cleaning): Promise<Cleaned> {
  return {
    expired: expired ? await deleteExpiredSecrets(database) : null,
    purged: await purgeDeleted(database, minDays),
    projectKeys: unusedProjects ? await inTransaction(database, removeUnusedProjectKeys) : null,
  }
}

/** Tells what `clean` would do now, and leaves everything as it is. */
export async function tryCleaning(database: Database, cleaning: Cleaning): Promise<Cleaned> {
  const trial = await database.transaction()
  try {
    return await clean(trial, cleaning)
  } finally {
    await trial.rollback()
  }
}
