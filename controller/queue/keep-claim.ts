import type { Database } from '../database/connection.js'
import type { Logger } from '../log/log.js'
import { type Claim, isHeld, RENEWAL_SECONDS, renewClaim } from './claim.js'

/**
 * Renews a claim until told to stop. When it is lost (another holder has raised the fence, or the database was away for a whole
 * lease) it counts as over at once, and `onLost` is called.
 * @returns the function that ends the renewals
 */
export function keepClaim(database: Database, claim: Claim, log: Logger, onLost: () => void): () => void {
  const lose = (why: string, error?: unknown) => {
    clearInterval(timer)
    claim.heldUntil = 0
    log.warn({ table: claim.table, id: claim.id, err: error }, why)
    onLost()
  }
  const renew = async () => {
    try {
      if (!(await renewClaim(database, claim)) && !ended) lose('claim lost: another holder has it, or the row is gone')
    } catch (error) {
      if (!isHeld(claim) && !ended) lose('claim ran out while the database was away', error)
    }
  }
  let ended = false
  const timer = setInterval(() => void renew(), RENEWAL_SECONDS * 1000)
  return () => {
    ended = true
    clearInterval(timer)
  }
}
