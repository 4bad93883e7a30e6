import type { Configuration } from '../../config/schema.js'
import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import { repeat } from '../../process/repeat.js'
import { deleteExpiredSecrets } from './expire.js'
import { purgeDeleted } from './purge.js'

export type KeyManagerHousekeepingOptions = {
  database: Database
  config: Configuration['key_manager']['housekeeping']
  log: Logger
}

/** Ends what has expired and purges what was deleted long ago, until stopped. Any number of housekeepers share one database. */
export function startKeyManagerHousekeeping({ database, config, log }: KeyManagerHousekeepingOptions): {
  stop: () => Promise<void>
} {
  const stopping = new AbortController()
  const rounds = repeat("the key manager's housekeeping", config.interval, stopping.signal, log, async () => {
    const expired = await deleteExpiredSecrets(database, stopping.signal)
    const purged = await purgeDeleted(database, config.min_days, stopping.signal)
    const found = [expired, ...Object.values(purged)].some(count => count > 0)
    if (found) log.info({ expired, purged }, 'the key manager was cleaned')
  })
  return {
    stop: async () => {
      stopping.abort()
      await rounds
    },
  }
}
