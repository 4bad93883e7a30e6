import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import { repeat } from '../../process/repeat.js'
import { type AuditRetention, pruneAudit } from '../audit/prune.js'
import type { CaBackend } from '../certificate-authorities/ca-backend.js'
import { purgeAcme } from './acme.js'
import { deleteExpiredSecrets } from './expire.js'
import type { HousekeepingSettings } from './options.js'
import { purgeDeleted } from './purge.js'

export type KeyManagerHousekeepingOptions = {
  database: Database
  config: HousekeepingSettings
  /** Null keeps the audit log forever. */
  audit?: AuditRetention | null
  caBackends?: readonly CaBackend[]
  log: Logger
}

/**
 * Until stopped, deletes expired secrets, purges old tombstones, removes the oldest audit records and what abandoned
 * orders left at CAs. Any number of
 * housekeepers may share one database.
 */
export function startKeyManagerHousekeeping({
  database,
  config,
  audit = null,
  caBackends = [],
  log,
}: KeyManagerHousekeepingOptions): {
  stop: () => Promise<void>
} {
  const stopping = new AbortController()
  const rounds = repeat("the key manager's housekeeping", config.interval, stopping.signal, log, async () => {
    const expired = await deleteExpiredSecrets(database, stopping.signal)
    const purged = await purgeDeleted(database, config.min_days, stopping.signal)
    const acme = await purgeAcme(database, config.min_days, stopping.signal)
    const found = [expired, acme.orders, acme.accounts, acme.keys, ...Object.values(purged)].some(count => count > 0)
    if (found) log.info({ expired, purged, acme }, 'deleted expired secrets and purged old tombstones')
    for (const { sweep } of caBackends) await sweep?.()
    const records = audit === null ? 0 : await pruneAudit(database, audit, stopping.signal)
    if (records > 0) log.info({ records }, 'removed old audit records')
  })
  return {
    stop: async () => {
      stopping.abort()
      await rounds
    },
  }
}
