import type { Database } from '../database/connection.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'
import type { Provider } from '../provider/provider.js'
import { startClaimLoop } from '../queue/claim-loop.js'
import { nameLeaseOwner, releaseDeadClaims } from '../queue/lease-owner.js'
import { listenForWakeUps } from '../queue/wake-up.js'
import { attempt } from './attempt.js'
import { loadBalancerClaims, secondsUntilDue } from './due.js'
import type { WorkerSettings } from './options.js'

export type WorkerOptions = {
  /** Connected as the role of the load balancer service. */
  database: Database
  /** URL of the same database, for LISTEN. */
  databaseUrl: string
  /** By the provider name of a load balancer. */
  providers: ReadonlyMap<string, Provider>
  config: WorkerSettings
  /** The controller host to which the machines of this worker are bound; null if they are bound to none. */
  hostId: string | null
  log: Logger
  /** Value of lease_owner; unique for every start of a worker. */
  owner?: string
}

/** Converges due load balancers until stopped; see startClaimLoop. Any number of workers, on any number of hosts, can share one database. */
export async function startWorker(options: WorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, databaseUrl, config, hostId, log, owner = nameLeaseOwner() } = options
  const released = await releaseDeadClaims(database, 'load_balancer').catch(() => [])
  if (released.length > 0) log.info({ loadBalancers: released }, 'released the claims of dead workers')
  const loop = startClaimLoop({
    database,
    claims: loadBalancerClaims(owner, config.concurrency, hostId),
    concurrency: config.concurrency,
    sweepMs: config.sweep_interval * 1000,
    secondsUntilDue: () => secondsUntilDue(database, hostId),
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
