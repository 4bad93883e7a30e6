import { untilNextTick } from '../time/ticks.js'

const INTERVAL_MS = 1_000
/**
 * If nothing has changed for this long, the amphora is idle and observed at shared ticks only: hundreds of idle
 * amphorae may share a host.
 */
const IDLE_AFTER_MS = 10_000
/** After a reload, to catch the old worker's last counters; after a crash, to notice when HAProxy serves again. */
export const BUSY_INTERVAL_MS = 100
const BUSY_MS = 3_000
const MAX_PAUSE_MS = 2_000

/** Decides how often to observe HAProxy: often just after a reload or crash, rarely while it is idle. */
export class Pace {
  #busyUntil = 0
  /** When counters or states last changed. */
  #changedAt = performance.now()

  /** Counters or states have changed. */
  changed(): void {
    this.#changedAt = performance.now()
  }

  /** HAProxy was reloaded or crashed: observe it more often for a while. */
  hurry(): void {
    this.#busyUntil = performance.now() + BUSY_MS
  }

  get isBusy(): boolean {
    return performance.now() < this.#busyUntil
  }

  get isIdle(): boolean {
    return performance.now() > Math.max(this.#busyUntil, this.#changedAt + IDLE_AFTER_MS)
  }

  /**
   * Milliseconds until the next observation.
   * @param spent milliseconds that the last one took
   * @param untilBeat milliseconds until the next heartbeat is due
   */
  pause(spent: number, untilBeat: number): number {
    if (this.isIdle) return Math.min(untilNextTick(), Math.max(INTERVAL_MS, untilBeat))
    const pause = this.isBusy ? BUSY_INTERVAL_MS : INTERVAL_MS
    // With thousands of servers an observation takes long, so observe less often.
    return Math.min(MAX_PAUSE_MS, Math.max(pause - spent, 5 * spent))
  }
}
