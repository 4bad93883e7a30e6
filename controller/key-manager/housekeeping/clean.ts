import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { inTransaction } from '../../database/transaction.js'
import { deleteExpiredSecrets } from './expire.js'
import { type Purged, purgeDeleted } from './purge.js'
import { removeUnusedProjectKeys } from './unused-keys.js'

export type Cleaning = {
  /** See purgeDeleted. */
  minDays: number
  /** Whether to delete expired secrets. */
  expired: boolean
  /** Whether to remove the keys of projects that have no objects left. */
  unusedProjects: boolean
}

/** Removed rows, by kind; null for what was not requested. */
export type Cleaned = { expired: number | null; purged: Purged; projectKeys: number | null }

export async function clean(database: Knex, { minDays, expired, unusedProjects }: Cleaning): Promise<Cleaned> {
  return {
    expired: expired ? await deleteExpiredSecrets(database) : null,
    purged: await purgeDeleted(database, minDays),
    projectKeys: unusedProjects ? await inTransaction(database, removeUnusedProjectKeys) : null,
  }
}

/** Counts what `clean` would remove now, and rolls back. */
export async function previewCleaning(database: Database, cleaning: Cleaning): Promise<Cleaned> {
  const trial = await database.transaction()
  try {
    return await clean(trial, cleaning)
  } finally {
    await trial.rollback()
  }
}
