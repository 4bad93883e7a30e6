import { computationsAtOnce } from '../../../process/thread-pool.js'
import { startClaimLoop } from '../../../queue/claim-loop.js'
import { nameLeaseOwner, releaseDeadClaims } from '../../../queue/lease-owner.js'
import { listenForWakeUps } from '../../../queue/wake-up.js'
import { ORDER_CHANNEL } from '../wake-channel.js'
import { attemptOrder, type OrderContext } from './attempt.js'
import { claimsIn, LANES, type Lane, secondsUntilDue } from './due.js'
import type { OrderWorkerSettings } from './options.js'

export type OrderWorkerOptions = OrderContext & {
  /** The key manager's database, for the connection that listens. */
  databaseUrl: string
  config: OrderWorkerSettings
  /** Shown in lease_owner; unique for every start of a worker. */
  owner?: string
}

/**
 * Carries out orders until stopped, each exactly once; see startClaimLoop. Any number of workers share one database. Searches for
 * primes run on as many processors as there are, those for large ones leave one free. Projects take turns: one with many orders does not keep the others waiting. An order that
 * ends its worker time after time ends in ERROR itself.
 */
export async function startOrderWorker(options: OrderWorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, databaseUrl, config, log, owner = nameLeaseOwner() } = options
  const concurrency: Record<Lane, number> = {
    quick: config.concurrency,
    primes: computationsAtOnce(),
    'large primes': Math.max(1, computationsAtOnce() - 1),
  }
  const freed = await releaseDeadClaims(database, 'secret_order').catch(() => [])
  if (freed.length > 0) log.info({ orders: freed }, 'a worker died over these; they go on')
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
