import { createFairQueue, type Place } from '../process/fair-queue.js'
import { FloodError } from './errors.js'

/**
 * Requests with a large body that are in memory at the same time. The bodies of all others wait in their connections
 * until a request before them is answered, so this number and the largest body bound the memory, whatever tenants send.
 */
const MAX_RUNNING = 8
const MAX_RUNNING_PER_LANE = 1
const MAX_WAITING = 512
const MAX_WAITING_PER_LANE = 32

export type LargeBodies = {
  /** Runs a request once its body may be read. @throws FloodError 429 when too many of its lane are waiting */
  take: <Result>(place: Place, task: () => Promise<Result>) => Promise<Result>
}

export function createLargeBodies(): LargeBodies {
  const queue = createFairQueue({
    maxRunning: MAX_RUNNING,
    maxRunningPerLane: MAX_RUNNING_PER_LANE,
    maxWaiting: MAX_WAITING,
    maxWaitingPerLane: MAX_WAITING_PER_LANE,
    refusal: lane =>
      new FloodError(
        429,
        'Too many large requests are waiting; try again in a moment.',
        `Large requests of ${lane}`,
        1,
      ),
  })
  return {
    take: async (place, task) => {
      const leave = await queue.enter(place)
      try {
        return await task()
      } finally {
        leave()
      }
    },
  }
}
