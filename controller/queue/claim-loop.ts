import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../database/connection.js'
import { isDatabaseAway } from '../database/database-away.js'
import type { Logger } from '../log/log.js'
import { type Claim, type ClaimRequest, claimDue } from './claim.js'
import { keepClaim } from './keep-claim.js'

export type ClaimLoopOptions = {
  database: Database
  /** What to claim, and for which owner. */
  claims: Omit<ClaimRequest, 'limit' | 'held'>
  /** Maximum number of attempts that run at once. */
  concurrency: number
  /** Longest pause between two polls without a wake-up. */
  sweepMs: number
  /** Seconds until the next row may become due without a wake-up; null when none is known. */
  secondsUntilDue: () => Promise<number | null>
  /**
   * Processes a claimed row and releases the claim. Never rejects. The signal aborts when the claim is lost or
   * the loop stops.
   * @returns seconds until the row should be retried; null for no retry
   */
  attempt: (claim: Claim, signal: AbortSignal) => Promise<number | null>
  log: Logger
}

export type ClaimLoop = {
  /** Something may be due now. */
  wake: () => void
  stop: () => Promise<void>
}

/** How long stop() waits for running attempts. Leases of attempts that still run then expire. */
const STOP_LIMIT_MS = 5_000
/** Shortest pause before a sweep for a row that is about to become due. */
const MIN_SWEEP_MS = 50

type RunningAttempt = { claim: Claim; abort: AbortController; stopRenewal: () => void; done: Promise<void> }

/**
 * Claims and processes due rows until stopped: at once when woken, and in a periodic sweep that needs no
 * wake-up. Any number of loops in any number of processes can share one table. While the database is away, the
 * loop keeps trying and recovers without a restart.
 *
 * INVARIANTS
 * - A row is in `running` from its claim until its attempt finishes: `running.size` never exceeds the
 *   concurrency.
 * - One claim round runs at a time; `isRoundRequested` asks for another one after it.
 * - A claim is renewed while its attempt runs. An attempt that loses its claim is aborted, and its fence stops
 *   later writes.
 */
export function startClaimLoop(options: ClaimLoopOptions): ClaimLoop {
  const { database, claims: request, concurrency, log } = options
  let stopping = false
  let isRoundRequested = false
  let mayBeMore = false
  let round: Promise<void> | null = null

  const wake = () => {
    isRoundRequested = true
    if (stopping || round !== null || attempts.running.size >= concurrency) return
    round = claimRound().finally(() => {
      round = null
      if (isRoundRequested) wake()
    })
  }

  const sweeper = createSweeper(options, async () => {
    wake()
    await round
  })

  const attempts = createAttempts(options, retrySeconds => {
    // A timer of months overflows, and ends at once.
    if (retrySeconds !== null) sweeper.sweepWithin(Math.min(options.sweepMs, retrySeconds * 1000 + 10))
    if (isRoundRequested || mayBeMore) wake()
  })

  const claimRound = async () => {
    const { running, begin } = attempts
    try {
      while (isRoundRequested && !stopping && running.size < concurrency) {
        isRoundRequested = false
        const limit = concurrency - running.size
        const claims = await claimDue(database, { ...request, limit, held: [...running.keys()] })
        for (const claim of claims) begin(claim)
        if (claims.length === limit) isRoundRequested = true
        // A project's share or a concurrent worker may have left due rows unclaimed; try again when a slot
        // becomes free.
        mayBeMore = claims.length > 1 || (running.size + 1) * 2 >= concurrency
      }
    } catch (error) {
      isRoundRequested = false
      log.warn({ err: error }, isDatabaseAway(error) ? 'database away; trying again' : 'claiming failed; trying again')
    }
  }

  sweeper.sweepNow()

  return {
    wake,
    stop: async () => {
      stopping = true
      sweeper.stop()
      await round
      await abortAll(attempts.running)
    },
  }
}

/** Runs attempts at claimed rows and renews their claims. @param onDone called when an attempt finishes */
function createAttempts(
  { database, attempt, log }: Pick<ClaimLoopOptions, 'database' | 'attempt' | 'log'>,
  onDone: (retrySeconds: number | null) => void,
) {
  const running = new Map<string, RunningAttempt>()
  const begin = (claim: Claim) => {
    const abort = new AbortController()
    const stopRenewal = keepClaim(database, claim, log, () => abort.abort())
    const done = attempt(claim, abort.signal).then(retrySeconds => {
      stopRenewal()
      running.delete(claim.id)
      onDone(retrySeconds)
    })
    running.set(claim.id, { claim, abort, stopRenewal, done })
  }
  return { running, begin }
}

/** Calls `poll` whenever a row may be due without a wake-up, at least every `sweepMs`. */
function createSweeper(
  { sweepMs, secondsUntilDue }: Pick<ClaimLoopOptions, 'sweepMs' | 'secondsUntilDue'>,
  poll: () => Promise<void>,
) {
  let timer: NodeJS.Timeout | undefined
  let nextAt = Number.POSITIVE_INFINITY
  let stopped = false

  const sweepWithin = (milliseconds: number) => {
    const at = performance.now() + milliseconds
    if (stopped || at >= nextAt) return
    clearTimeout(timer)
    nextAt = at
    timer = setTimeout(() => void sweep(), milliseconds)
  }

  const sweep = async () => {
    nextAt = Number.POSITIVE_INFINITY
    await poll()
    const seconds = await secondsUntilDue().catch(() => null)
    sweepWithin(seconds === null ? sweepMs : Math.min(sweepMs, Math.max(MIN_SWEEP_MS, seconds * 1000)))
  }

  return {
    sweepNow: () => void sweep(),
    sweepWithin,
    stop: () => {
      stopped = true
      clearTimeout(timer)
    },
  }
}

/** Aborts the running attempts and waits STOP_LIMIT_MS for them. */
async function abortAll(running: ReadonlyMap<string, RunningAttempt>): Promise<void> {
  for (const { abort } of running.values()) abort.abort()
  const timeout = new AbortController()
  await Promise.race([
    Promise.all([...running.values()].map(({ done }) => done)),
    sleep(STOP_LIMIT_MS, undefined, { signal: timeout.signal }).catch(() => undefined),
  ])
  timeout.abort()
  // Attempts that still run must start nothing new: their claims end here at once, and in the database when the
  // leases expire.
  for (const { claim, stopRenewal } of running.values()) {
    stopRenewal()
    claim.heldUntil = 0
  }
}
