import type { Database } from '../database/connection.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'
import type { Provider } from '../provider/provider.js'
import { startClaimLoop } from '../queue/claim-loop.js'
import { nameLeaseOwner, releaseClaimsOfDead } from '../queue/lease-owner.js'
import { listenForWakeUps } from '../queue/wake-up.js'
import { attempt } from './attempt.js'
import { claimsOf, secondsUntilDue } from './due.js'
import type { WorkerSettings } from './options.js'

export type WorkerOptions = {
  /** The role of the load balancer service. */
  database: Database
  /** The same database, for the connection that listens. */
  databaseUrl: string
  /** By the names that load balancers carry. */
  providers: ReadonlyMap<string, Provider>
  config: WorkerSettings
  log: Logger
  /** Shown in lease_owner; unique for every start of a worker. */
  owner?: string
}

/** Converges load balancers that are due until stopped; see startClaimLoop. Any number of workers share one database. */
export async function startWorker(options: WorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, databaseUrl, config, log, owner = nameLeaseOwner() } = options
  const freed = await releaseClaimsOfDead(database, 'load_balancer').catch(() => [])
  if (freed.length > 0) log.info({ loadBalancers: freed }, 'a worker died over these; they go on')
  const loop = startClaimLoop({
    database,
    claims: claimsOf(owner, config.concurrency),
    concurrency: config.concurrency,
    sweepMs: config.sweep_interval * 1000,
    secondsUntilDue: () => secondsUntilDue(database),
    attempt: async (claim, signal) => {
      const outcome = await attempt(options, claim, signal)
      return outcome.kind === 'failed' ? outcome.retrySeconds : null
    },
    log,
  })
  const wakeUps = await listenForWakeUps({ databaseUrl, channel: WAKE_CHANNEL, onWake: loop.wake, log })
  return {
    stop: async () => {
      await wakeUps.stop()
      await loop.stop()
    },
  }
}
