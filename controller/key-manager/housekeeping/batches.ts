import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import type { Fragment } from '../../database/sql.js'

/** Rows that one statement takes at most, so that none holds many for long. */
export const BATCH = 500

/**
 * Runs a statement until there is nothing left for it, or until it is told to stop.
 * @param statement changes at most BATCH rows, and returns one row for each
 * @returns how many rows it took
 */
export async function inBatches(database: Knex, statement: Fragment, signal?: AbortSignal): Promise<number> {
  for (let taken = 0; ; ) {
    const count = await execute(database, statement)
    taken += count
    if (count < BATCH || signal?.aborted === true) return taken
  }
}
