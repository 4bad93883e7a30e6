export type LaneOptions = {
  atOnce: number
  mostWaiting: number
  mostWaitMilliseconds: number
  /** The error for whoever gets no turn. */
  refusal: (reason: 'many wait already' | 'the wait got long') => Error
}

type Waiting = { go: () => void }

/**
 * @returns a function that runs tasks, at most so many at once; those beyond wait their turn, and are refused when too many wait already or
 *   the wait gets long
 */
export function createLane({ atOnce, mostWaiting, mostWaitMilliseconds, refusal }: LaneOptions) {
  const waiting = new Set<Waiting>()
  let running = 0

  const turn = (): Promise<void> => {
    if (running < atOnce) {
      running++
      return Promise.resolve()
    }
    if (waiting.size >= mostWaiting) {
      return Promise.reject(refusal('many wait already'))
    }
    return new Promise((resolve, reject) => {
      const limit = setTimeout(() => {
        waiting.delete(place)
        reject(refusal('the wait got long'))
      }, mostWaitMilliseconds)
      const place: Waiting = {
        go: () => {
          clearTimeout(limit)
          resolve()
        },
      }
      waiting.add(place)
    })
  }

  return async <T>(task: () => Promise<T>): Promise<T> => {
    await turn()
    try {
      return await task()
    } finally {
      const [next] = waiting
      if (next === undefined) running--
      else {
        waiting.delete(next)
        next.go()
      }
    }
  }
}
