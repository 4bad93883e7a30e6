import { setTimeout as sleep } from 'node:timers/promises'
import { isDatabaseAway } from '../database/database-away.js'
import type { Logger } from '../log/log.js'
import { listenForWakeUps } from '../queue/wake-up.js'

/** Notified by triggers on the tables of the network service. */
const CHANNEL = 'krater_network'
/** Longest pause between two rounds without a wake-up. */
const SWEEP_MS = 5_000

export type Rounds = {
  /** Makes the next round begin at once. */
  wake: () => void
  stop: () => Promise<void>
}

export type RoundsOptions = {
  /** Of the network service, for the listening connection. */
  databaseUrl: string
  /**
   * Carries out what the tables say. It does all that it can.
   * @param wake makes another round follow at once
   * @returns what failed
   */
  round: (signal: AbortSignal, wake: () => void) => Promise<unknown[]>
  log: Logger
}

/** Runs rounds until stopped: one after every change of the tables, and every sweep. What fails is tried in the next one. */
export async function startRounds({ databaseUrl, round, log }: RoundsOptions): Promise<Rounds> {
  const stopping = new AbortController()
  let interrupt = (): void => undefined
  let isWoken = false

  const wake = () => {
    isWoken = true
    interrupt()
  }
  const pause = async (): Promise<void> => {
    const timeout = new AbortController()
    interrupt = () => timeout.abort()
    if (!isWoken && !stopping.signal.aborted)
      await sleep(SWEEP_MS, undefined, { signal: timeout.signal }).catch(() => undefined)
    isWoken = false
  }
  const report = (error: unknown): void => {
    const what = isDatabaseAway(error) ? 'database away; trying again' : 'a round failed; trying again'
    if (!stopping.signal.aborted) log.warn({ err: error }, what)
  }
  const rounds = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      for (const error of await round(stopping.signal, wake)) report(error)
      await pause()
    }
  }

  const wakeUps = await listenForWakeUps({ databaseUrl, channel: CHANNEL, onWake: wake, log })
  const done = rounds()
  return {
    wake,
    stop: async () => {
      stopping.abort()
      interrupt()
      await wakeUps.stop()
      await done
    },
  }
}

/** What failed of several things. */
export const failuresOf = (results: readonly PromiseSettledResult<unknown>[]): unknown[] =>
  results.flatMap(result => (result.status === 'rejected' ? [result.reason as unknown] : []))
