import { setTimeout as delay } from 'node:timers/promises'
import type { Knex } from 'knex'

export type Transaction = Knex.Transaction

/** SQLSTATEs after which a retry of the same transaction may succeed. */
const TRANSIENT: ReadonlySet<string> = new Set([
  '40001', // serialization_failure
  '40P01', // deadlock_detected
])

const MAX_ATTEMPTS = 3
/** Before another attempt: at once, it might lock the same rows before the other transaction wakes up. */
const pauseMs = (attempt: number): number => attempt * (20 + Math.random() * 40)

/**
 * Runs `body` in one transaction. If PostgreSQL reports a conflict with another transaction, retries it, with at most
 * three attempts. No other code begins or commits a transaction: committing by hand hides a failed COMMIT.
 */
export const inTransaction = <T>(database: Knex, body: (trx: Transaction) => Promise<T>): Promise<T> =>
  retryOnConflict(() => database.transaction(body))

/** As inTransaction, for work that already is one transaction, such as a single statement. */
export async function retryOnConflict<T>(transaction: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transaction()
    } catch (error) {
      if (attempt === MAX_ATTEMPTS || !TRANSIENT.has(sqlState(error))) throw error
      await delay(pauseMs(attempt))
    }
  }
}

/** The SQLSTATE of a PostgreSQL error, or '' for any other error. */
export function sqlState(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''
}

export const isUniqueViolation = (error: unknown): boolean => sqlState(error) === '23505'
