import type { Database } from '../database/connection.js'
import type { Logger } from '../log/log.js'
import { type Claim, isHeld, RENEWAL_SECONDS, renewClaim } from './claim.js'

/**
 * Renews a claim until stopped. A claim is lost when another holder raises the fence, or when the database is
 * away for a whole lease. It then ends at once, and `onLost` is called.
 * @returns a function that stops the renewals
 */
export function keepClaim(database: Database, claim: Claim, log: Logger, onLost: () => void): () => void {
  const lose = (reason: string, error?: unknown) => {
    clearInterval(timer)
    claim.heldUntil = 0
    log.warn({ table: claim.table, id: claim.id, err: error }, reason)
    onLost()
  }
  const renew = async () => {
    try {
      if (!(await renewClaim(database, claim)) && !stopped)
        lose('claim lost: another worker holds the row, or the row was deleted')
    } catch (error) {
      if (!isHeld(claim) && !stopped) lose('claim expired while the database was away', error)
    }
  }
  let stopped = false
  const timer = setInterval(() => void renew(), RENEWAL_SECONDS * 1000)
  return () => {
    stopped = true
    clearInterval(timer)
  }
}
