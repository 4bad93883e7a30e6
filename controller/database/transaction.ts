import type { Knex } from 'knex'
import type { Database } from './connection.js'

export type Transaction = Knex.Transaction

/** SQLSTATEs after which the same transaction may succeed when tried again. */
const TRANSIENT: ReadonlySet<string> = new Set([
  '40001', // serialization_failure
  '40P01', // deadlock_detected
])

/**
 * Runs `body` in one transaction, again (three times at most) when PostgreSQL reports a conflict with another one.
 * The only place that begins or commits: committing by hand hides a failed COMMIT.
 */
export const inTransaction = <T>(database: Database, body: (trx: Transaction) => Promise<T>): Promise<T> =>
  againOnConflict(() => database.transaction(body))

/** Runs what is one transaction, such as a single statement, again (three times at most) when PostgreSQL reports a conflict with another one. */
export async function againOnConflict<T>(transaction: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transaction()
    } catch (error) {
      if (attempt === 3 || !TRANSIENT.has(sqlState(error))) throw error
    }
  }
}

/** The SQLSTATE of a PostgreSQL error, or '' for any other error. */
export function sqlState(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''
}

export const isUniqueViolation = (error: unknown): boolean => sqlState(error) === '23505'
