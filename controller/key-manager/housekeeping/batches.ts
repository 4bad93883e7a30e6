import type { Knex } from 'knex'

/** Rows that one statement takes at most, so that none holds many for long. */
const BATCH = 500

/**
 * Runs a statement until there is nothing left for it, or until it is told to stop.
 * @param sql changes at most as many rows as its last binding says, and returns one row for each
 * @returns how many rows it took
 */
export async function inBatches(
  database: Knex,
  sql: string,
  bindings: readonly Knex.RawBinding[],
  signal?: AbortSignal,
): Promise<number> {
  for (let taken = 0; ; ) {
    const { rows } = await database.raw(sql, [...bindings, BATCH])
    taken += rows.length
    if (rows.length < BATCH || signal?.aborted === true) return taken
  }
}
