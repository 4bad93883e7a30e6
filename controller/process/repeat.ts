import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../log/log.js'

const MAX_PAUSE_MS = 30_000

/** Runs `work` at once, and again after each pause, until aborted. Failures lengthen the pauses. Never rejects. */
export async function repeat(
  what: string,
  pauseSeconds: number,
  signal: AbortSignal,
  log: Logger,
  work: () => Promise<void>,
): Promise<void> {
  let pauseMs = pauseSeconds * 1000
  while (!signal.aborted) {
    try {
      await work()
      pauseMs = pauseSeconds * 1000
    } catch (error) {
      if (signal.aborted) return
      pauseMs = Math.min(pauseMs * 2, Math.max(MAX_PAUSE_MS, pauseSeconds * 1000))
      log.warn({ err: error, pauseMs }, `${what} failed; retrying`)
    }
    await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
  }
}
