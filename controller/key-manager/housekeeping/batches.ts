import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import type { Fragment } from '../../database/sql.js'

/** Maximum rows per statement, so that none locks many rows for long. */
export const BATCH_SIZE = 500

/**
 * Repeats a statement until nothing is left to change, or the signal aborts.
 * @param statement changes at most BATCH_SIZE rows and returns one row for each
 * @returns the number of changed rows
 */
export async function inBatches(database: Knex, statement: Fragment, signal?: AbortSignal): Promise<number> {
  for (let total = 0; ; ) {
    const count = await execute(database, statement)
    total += count
    if (count < BATCH_SIZE || signal?.aborted === true) return total
  }
}
