import type { Database } from '../../database/connection.js'
import { execute, one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'

/** Another process holds the lock. */
export class LockTaken extends Error {}

/**
 * Runs `body` in only one process of the installation at a time. An idle transaction holds the lock, so it
 * ends with the process, however that ends, and blocks nothing else.
 * @param body gets a function that throws if the lock was lost
 * @throws LockTaken
 */
export function withExclusiveLock<T>(
  database: Database,
  name: string,
  body: (requireLock: () => Promise<void>) => Promise<T>,
): Promise<T> {
  return inTransaction(database, async trx => {
    await execute(trx, sql`SET LOCAL idle_in_transaction_session_timeout = 0`)
    const { isLocked } = await one(
      trx,
      sql<{ isLocked: boolean }>`SELECT pg_try_advisory_xact_lock(hashtext(${`krater ${name}`})) AS "isLocked"`,
    )
    if (!isLocked) throw new LockTaken(name)
    return body(async () => {
      await execute(trx, sql`SELECT 1`)
    })
  })
}
