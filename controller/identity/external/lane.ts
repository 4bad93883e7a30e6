import { IdentityAway } from './identity-away.js'

export type LaneOptions = { atOnce: number; mostWaiting: number; mostWaitMilliseconds: number }

type Waiting = { go: () => void }

/**
 * @returns a function that runs tasks, at most so many at once; those beyond wait their turn, and are refused when too many wait already or
 *   the wait gets long
 */
export function createLane({ atOnce, mostWaiting, mostWaitMilliseconds }: LaneOptions) {
  const waiting = new Set<Waiting>()
  let running = 0

  const turn = (): Promise<void> => {
    if (running < atOnce) {
      running++
      return Promise.resolve()
    }
    if (waiting.size >= mostWaiting) {
      return Promise.reject(new IdentityAway(`${mostWaiting} tokens wait to be validated already`))
    }
    return new Promise((resolve, reject) => {
      const limit = setTimeout(() => {
        waiting.delete(place)
        reject(new IdentityAway(`the turn to ask Keystone did not come within ${mostWaitMilliseconds / 1000} s`))
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
