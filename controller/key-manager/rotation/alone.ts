import type { Database } from '../../database/connection.js'
import { execute, one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
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
    await execute(trx, sql`SET LOCAL idle_in_transaction_session_timeout = 0`)
    const { alone } = await one(
      trx,
      sql<{ alone: boolean }>`SELECT pg_try_advisory_xact_lock(hashtext(${`krater ${what}`})) AS alone`,
    )
    if (!alone) throw new NotAlone(what)
    return body(async () => {
      await execute(trx, sql`SELECT 1`)
    })
  })
}
