import { untilNextMoment } from '../time/moments.js'

const LOOK_MS = 1_000
/** When nothing has changed for this long, nobody uses it: it is observed at the moments only, since hundreds of amphorae may idle on one host. */
const IDLE_AFTER_MS = 10_000
/** Used just after a reload, to catch the old worker's last counters, and after a crash, to notice the return of service. */
export const BUSY_LOOK_MS = 100
const BUSY_MS = 3_000
const LONGEST_PAUSE_MS = 2_000

/** How often HAProxy is observed: often just after a reload or a crash, rarely while nobody uses it. */
export class Pace {
  #busyUntil = 0
  /** When counters or states last changed. */
  #changedAt = performance.now()

  /** Counters or states have changed. */
  changed(): void {
    this.#changedAt = performance.now()
  }

  /** Something has happened to HAProxy: observe it more often for a while. */
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
    if (this.isIdle) return Math.min(untilNextMoment(), Math.max(LOOK_MS, untilBeat))
    const pause = this.isBusy ? BUSY_LOOK_MS : LOOK_MS
    // With thousands of servers an observation takes long, so it is made less often.
    return Math.min(LONGEST_PAUSE_MS, Math.max(pause - spent, 5 * spent))
  }
}
