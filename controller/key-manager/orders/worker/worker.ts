import { computationsAtOnce } from '../../../process/thread-pool.js'
import { startClaimLoop } from '../../../queue/claim-loop.js'
import { nameLeaseOwner, releaseDeadClaims } from '../../../queue/lease-owner.js'
import { listenForWakeUps } from '../../../queue/wake-up.js'
import { ORDER_CHANNEL } from '../wake-channel.js'
import { attemptOrder, type OrderContext } from './attempt.js'
import { claimsIn, LANES, type Lane, secondsUntilDue } from './due.js'
import type { OrderWorkerSettings } from './options.js'

export type OrderWorkerOptions = OrderContext & {
  /** The key manager's database, for the listening connection. */
  databaseUrl: string
  config: OrderWorkerSettings
  /** The lease_owner; unique per start of a worker. */
  owner?: string
}

/**
 * Executes orders until stopped, each exactly once; see startClaimLoop. Any number of workers may share one
 * database. Searches for primes use all processors; those for large primes leave one free. Projects take turns, so
 * one with many orders does not delay the others. An order that repeatedly kills its worker ends in ERROR.
 */
export async function startOrderWorker(options: OrderWorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, databaseUrl, config, log, owner = nameLeaseOwner() } = options
  const concurrency: Record<Lane, number> = {
    quick: config.concurrency,
    primes: computationsAtOnce(),
    'large primes': Math.max(1, computationsAtOnce() - 1),
  }
  const freed = await releaseDeadClaims(database, 'secret_order').catch(() => [])
  if (freed.length > 0) log.info({ orders: freed }, 'released orders of a dead worker')
  const loops = LANES.map(lane => ({
    lane,
    ...startClaimLoop({
      database,
      claims: claimsIn(lane, owner),
      concurrency: concurrency[lane],
      sweepMs: config.sweep_interval * 1000,
      secondsUntilDue: () => secondsUntilDue(database, lane),
      attempt: (claim, signal) => attemptOrder(options, claim, signal),
      log,
    }),
  }))
  const wakeUps = await listenForWakeUps({
    databaseUrl,
    channel: ORDER_CHANNEL,
    onWake: payload => {
      for (const { lane, wake } of loops) if (payload === null || payload === lane) wake()
    },
    log,
  })
  return {
    stop: async () => {
      await wakeUps.stop()
      await Promise.all(loops.map(({ stop }) => stop()))
    },
  }
}
