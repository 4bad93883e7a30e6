import { setTimeout as sleep } from 'node:timers/promises'
import { LEASE_SECONDS } from './claim.js'

const PAUSE_MS = 250

export type DatabaseWait = {
  /**
   * True when the database has been away for a whole lease. Other services fail with the same codes, so waiting
   * must end.
   */
  isOver: () => boolean
  /** Sleeps PAUSE_MS. The first call starts the clock of isOver. */
  pause: () => Promise<void>
  /** The database answered. */
  reset: () => void
}

/** Lets an attempt wait for a database that is away. */
export function createDatabaseWait(): DatabaseWait {
  let awaySince: number | null = null
  return {
    isOver: () => awaySince !== null && performance.now() - awaySince >= LEASE_SECONDS * 1000,
    pause: async () => {
      awaySince ??= performance.now()
      await sleep(PAUSE_MS)
    },
    reset: () => {
      awaySince = null
    },
  }
}
