import { setTimeout as sleep } from 'node:timers/promises'
import type { Claim } from '../../../database/claim.js'
import type { Database } from '../../../database/connection.js'
import { isDatabaseAway } from '../../../database/database-away.js'
import type { Logger } from '../../../log/log.js'
import { giveBackLate } from './settle.js'

const PAUSE_MS = 250

/**
 * Gives claims back as soon as the database is there again, until stopped: their attempts are not to be counted among those that ended without
 * a word. What is left when it stops is given up.
 */
export function startGivingBack(
  database: Database,
  log: Logger,
): { add: (claim: Claim) => void; stop: () => Promise<void> } {
  const stopping = new AbortController()
  const waiting = new Set<Claim>()
  let isRunning = false
  let rounds = Promise.resolve()

  const giveBack = async (claim: Claim) => {
    try {
      await giveBackLate(database, claim)
    } catch (error) {
      if (isDatabaseAway(error)) return false
      log.error({ order: claim.id, err: error }, 'an order could not be given back')
    }
    waiting.delete(claim)
    return true
  }

  const run = async () => {
    isRunning = true
    while (waiting.size > 0 && !stopping.signal.aborted) {
      for (const claim of waiting) {
        if (await giveBack(claim)) continue
        await sleep(PAUSE_MS, undefined, { signal: stopping.signal }).catch(() => undefined)
        break
      }
    }
    isRunning = false
  }

  return {
    add: claim => {
      waiting.add(claim)
      if (!isRunning) rounds = run()
    },
    stop: async () => {
      stopping.abort()
      await rounds
    },
  }
}
