import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../database/connection.js'
import { isDatabaseAway } from '../database/database-away.js'
import type { Logger } from '../log/log.js'
import { type Claim, type ClaimRequest, claimDue } from './claim.js'
import { keepClaim } from './keep-claim.js'

export type ClaimLoopOptions = {
  database: Database
  /** What is claimed, and for whom. */
  claims: Omit<ClaimRequest, 'limit' | 'held'>
  /** How many claimed rows are worked on at once. */
  concurrency: number
  /** Longest pause between two polls that nobody asked for. */
  sweepMs: number
  /** Seconds until something may become due without anybody saying so; null when nothing is in sight. */
  secondsUntilDue: () => Promise<number | null>
  /**
   * Does what a claimed row asks for, and gives the claim back. Never rejects. The signal aborts when the claim is lost or the loop stops.
   * @returns seconds until the row is to be tried again; null when nothing is to follow
   */
  attempt: (claim: Claim, signal: AbortSignal) => Promise<number | null>
  log: Logger
}

export type ClaimLoop = {
  /** Something may be due now. */
  wake: () => void
  stop: () => Promise<void>
}

/** How long stop() waits for work under way; what is not finished by then is left to lapse. */
const STOP_LIMIT_MS = 5_000

type Work = { claim: Claim; abort: AbortController; letGo: () => void; done: Promise<void> }

/**
 * Works on rows that are due until stopped: at once when woken, and by a sweep that needs no wake-up. Any number of loops in any number of
 * processes share one table. While the database is away it keeps trying, and goes on by itself.
 *
 * INVARIANTS
 * - A row is in `running` from its claim until its attempt has ended: `running.size` never exceeds the concurrency.
 * - One claim round runs at a time; `isAnotherDue` says that another must follow it.
 * - A claim is renewed for as long as its attempt runs; an attempt whose claim is lost is aborted, and writes nothing more (fence).
 */
export function startClaimLoop(options: ClaimLoopOptions): ClaimLoop {
  const { database, claims: request, concurrency, sweepMs, secondsUntilDue, attempt, log } = options
  const running = new Map<string, Work>()
  let stopping = false
  let isAnotherDue = false
  let mayBeMore = false
  let round: Promise<void> | null = null
  let sweepTimer: NodeJS.Timeout | undefined
  let sweepAt = Number.POSITIVE_INFINITY

  const wake = () => {
    isAnotherDue = true
    if (stopping || round !== null || running.size >= concurrency) return
    round = claimRound().finally(() => {
      round = null
      if (isAnotherDue) wake()
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
    const seconds = await secondsUntilDue().catch(() => null)
    sweepWithin(seconds === null ? sweepMs : Math.min(sweepMs, Math.max(50, seconds * 1000)))
  }

  const claimRound = async () => {
    try {
      while (isAnotherDue && !stopping && running.size < concurrency) {
        isAnotherDue = false
        const limit = concurrency - running.size
        const claims = await claimDue(database, { ...request, limit, held: [...running.keys()] })
        for (const claim of claims) begin(claim)
        if (claims.length === limit) isAnotherDue = true
        // Projects have shares of the slots, and other workers were taking rows: what is left may go once a slot is free again.
        mayBeMore = claims.length > 1 || (running.size + 1) * 2 >= concurrency
      }
    } catch (error) {
      isAnotherDue = false
      log.warn({ err: error }, isDatabaseAway(error) ? 'database away; trying again' : 'claiming failed; trying again')
    }
  }

  const begin = (claim: Claim) => {
    const abort = new AbortController()
    const letGo = keepClaim(database, claim, log, () => abort.abort())
    const done = attempt(claim, abort.signal).then(retrySeconds => {
      letGo()
      running.delete(claim.id)
      if (retrySeconds !== null) sweepWithin(retrySeconds * 1000 + 10)
      if (isAnotherDue || mayBeMore) wake()
    })
    running.set(claim.id, { claim, abort, letGo, done })
  }

  void sweep()

  return {
    wake,
    stop: async () => {
      stopping = true
      clearTimeout(sweepTimer)
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
