import { setTimeout as sleep } from 'node:timers/promises'
import { LEASE_SECONDS } from './claim.js'

const PAUSE_MS = 250

export type DatabaseWait = {
  /** True when the database has been away for a whole lease: other parts fail with the same codes, so patience ends. */
  isOver: () => boolean
  /** Waits a moment; the first call after the database was there begins the time. */
  pause: () => Promise<void>
  /** The database is there. */
  back: () => void
}

/** How the attempt at a claimed row waits for a database that is away. */
export function createDatabaseWait(): DatabaseWait {
  let awaySince: number | null = null
  return {
    isOver: () => awaySince !== null && performance.now() - awaySince >= LEASE_SECONDS * 1000,
    pause: async () => {
      awaySince ??= performance.now()
      await sleep(PAUSE_MS)
    },
    back: () => {
      awaySince = null
    },
  }
}
