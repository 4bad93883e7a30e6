import { setTimeout as sleep } from 'node:timers/promises'
import type { Configuration } from '../config/schema.js'
import { type Claim, claimDue } from '../database/claim.js'
import type { Database } from '../database/connection.js'
import { isDatabaseAway } from '../database/database-away.js'
import { WAKE_CHANNEL } from '../load-balancer/wake-channel.js'
import type { Logger } from '../log/log.js'
import type { Provider } from '../provider/provider.js'
import { attempt } from './attempt.js'
import { DUE, DUE_ORDER, secondsUntilDue } from './due.js'
import { keepClaim } from './keep-claim.js'
import { nameLeaseOwner, releaseClaimsOfDead } from './lease-owner.js'
import { listenForWakeUps } from './wake-up.js'

export type WorkerOptions = {
  /** The role of the load balancer service. */
  database: Database
  /** The same database, for the connection that listens. */
  databaseUrl: string
  /** By the names that load balancers carry. */
  providers: ReadonlyMap<string, Provider>
  config: Configuration['worker']
  log: Logger
  /** Shown in lease_owner; unique for every start of a worker. */
  owner?: string
}

/** How long stop() waits for work under way; what is not finished by then is left to lapse. */
const STOP_LIMIT_MS = 5_000

type Work = { claim: Claim; abort: AbortController; letGo: () => void; done: Promise<void> }

/**
 * Converges load balancers that are due until stopped: at once when woken, and by a sweep that needs no wake-up. Any number of workers
 * share one database. While the database is away it keeps trying, and goes on by itself.
 *
 * INVARIANTS
 * - A load balancer is in `running` from its claim until its attempt has ended: `running.size` never exceeds the concurrency.
 * - One claim round runs at a time; `wanted` says that another must follow it.
 * - A claim is renewed for as long as its attempt runs; an attempt whose claim is lost is aborted, and writes nothing more (fence).
 */
export async function startWorker(options: WorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, config, log, owner = nameLeaseOwner() } = options
  const running = new Map<string, Work>()
  const sweepMs = config.sweep_interval * 1000
  let stopping = false
  let wanted = false
  let round: Promise<void> | null = null
  let sweepTimer: NodeJS.Timeout | undefined
  let sweepAt = Number.POSITIVE_INFINITY

  const wake = () => {
    wanted = true
    if (stopping || round !== null || running.size >= config.concurrency) return
    round = claimRound().finally(() => {
      round = null
      if (wanted) wake()
    })
  }

  const sweepWithin = (milliseconds: number) => {
    const at = performance.now() + milliseconds
    if (stopping || at >= sweepAt) return
    clearTimeout(sweepTimer)
    sweepAt = at
    sweepTimer = setTimeout(() => void sweep(), milliseconds)
  }

  const sweep = async () => {
    sweepAt = Number.POSITIVE_INFINITY
    wake()
    await round
    const seconds = await secondsUntilDue(database).catch(() => null)
    sweepWithin(seconds === null ? sweepMs : Math.min(sweepMs, Math.max(50, seconds * 1000)))
  }

  const claimRound = async () => {
    try {
      while (wanted && !stopping && running.size < config.concurrency) {
        wanted = false
        const limit = config.concurrency - running.size
        const claims = await claimDue(database, { table: 'load_balancer', due: DUE, order: DUE_ORDER, owner, limit })
        for (const claim of claims) begin(claim)
        if (claims.length === limit) wanted = true
      }
    } catch (error) {
      wanted = false
      log.warn({ err: error }, isDatabaseAway(error) ? 'database away; trying again' : 'claiming failed; trying again')
    }
  }

  const begin = (claim: Claim) => {
    const abort = new AbortController()
    const letGo = keepClaim(database, claim, log, () => abort.abort())
    const done = attempt(options, claim, abort.signal).then(outcome => {
      letGo()
      running.delete(claim.id)
      if (outcome.kind === 'failed') sweepWithin(outcome.retrySeconds * 1000 + 10)
      if (wanted) wake()
    })
    running.set(claim.id, { claim, abort, letGo, done })
  }

  const freed = await releaseClaimsOfDead(database, 'load_balancer').catch(() => [])
  if (freed.length > 0) log.info({ loadBalancers: freed }, 'a worker died over these; they go on')
  const wakeUps = await listenForWakeUps({
    databaseUrl: options.databaseUrl,
    channel: WAKE_CHANNEL,
    onWake: wake,
    log,
  })
  void sweep()

  return {
    stop: async () => {
      stopping = true
      clearTimeout(sweepTimer)
      await wakeUps.stop()
      await round
      for (const { abort } of running.values()) abort.abort()
      const patience = new AbortController()
      await Promise.race([
        Promise.all([...running.values()].map(work => work.done)),
        sleep(STOP_LIMIT_MS, undefined, { signal: patience.signal }).catch(() => undefined),
      ])
      patience.abort()
      // What still runs begins nothing new: its lease counts as over here, and lapses there.
      for (const { claim, letGo } of running.values()) {
        letGo()
        claim.heldUntil = 0
      }
    },
  }
}
