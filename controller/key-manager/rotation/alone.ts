import type { Database } from '../../database/connection.js'
import { inTransaction } from '../../database/transaction.js'

/** Another process is doing the same. */
export class NotAlone extends Error {}

/**
 * Runs something that only one process of the whole installation may do at a time. The lock is an idle transaction's: it ends with the process, however
 * that ends, and holds back nothing else.
 * @param body is given a function that fails when the lock was lost meanwhile
 * @throws NotAlone
 */
export function alone<T>(
  database: Database,
  what: string,
  body: (stillAlone: () => Promise<void>) => Promise<T>,
): Promise<T> {
  return inTransaction(database, async trx => {
    await trx.raw('SET LOCAL idle_in_transaction_session_timeout = 0')
    const { rows } = await trx.raw('SELECT pg_try_advisory_xact_lock(hashtext(?)) AS alone', [`krater ${what}`])
    const [lock] = rows as { alone: boolean }[]
    if (lock?.alone !== true) throw new NotAlone(what)
    return body(async () => {
      await trx.raw('SELECT 1')
    })
  })
}
