const WINDOW_MS = 5 * 60 * 1000
const ALWAYS_ALLOWED = 3
const FRACTION = 0.2

/**
 * Bounds how many machines that still run are restarted because their agent is silent: when many seem dead at once, the fault is
 * more likely in between. Starting a machine that does not run is never braked, since it can harm nothing.
 */
export type Brake = {
  /** @param fleet amphorae that serve @returns how many more may be restarted now */
  left: (fleet: number) => number
  record: () => void
}

/** max(3, 20 % of the fleet) restarts in a sliding window of 5 minutes. @param now milliseconds of a monotonic clock */
export function createBrake(now: () => number = () => performance.now()): Brake {
  let started: number[] = []
  return {
    left: fleet => {
      started = started.filter(at => now() - at < WINDOW_MS)
      return Math.max(0, Math.max(ALWAYS_ALLOWED, Math.floor(fleet * FRACTION)) - started.length)
    },
    record: () => {
      started.push(now())
    },
  }
}
