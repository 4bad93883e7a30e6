import { createFairQueue, type Place } from '../process/fair-queue.js'
import { areProcessorsShort } from '../process/pressure.js'
import { withinTurn } from '../process/turn.js'
import { FloodError } from './errors.js'

/** Fewer than a pool has connections to the database: who waits, waits in turn. */
const AT_ONCE = 8
const AT_ONCE_PER_LANE = 2
/** Others meet one request of a project at the event loop and at the database, however many it sends. */
const AT_ONCE_IN_COMPANY = 1
/** Where processors are short, whoever sends more than is answered has half of its turns; a fifth, when it does so for long and others are there. */
const RESTS_PER_TURN = 1
const RESTS_PER_TURN_OF_FLOOD = 4
const LONGEST_REST_MS = 2000
const MOST_WAITING = 2048
const MOST_WAITING_PER_LANE = 256

/** Pure. Both in milliseconds. */
export const restAfter = (turn: number, floods: boolean): number =>
  Math.min((floods ? RESTS_PER_TURN_OF_FLOOD : RESTS_PER_TURN) * turn, LONGEST_REST_MS)

export type Turns = {
  /** Runs a task when it is its turn. @throws FloodError 429 when too many of its lane wait already */
  take: <Result>(place: Place, task: () => Promise<Result>) => Promise<Result>
}

/** Requests of different projects take turns at the event loop and at the database, so that no project can keep others waiting for long. */
export function createTurns(): Turns {
  const queue = createFairQueue({
    atOnce: AT_ONCE,
    atOncePerLane: AT_ONCE_PER_LANE,
    atOnceInCompany: AT_ONCE_IN_COMPANY,
    mostWaiting: MOST_WAITING,
    mostWaitingPerLane: MOST_WAITING_PER_LANE,
    restMilliseconds: (turn, floods) => (areProcessorsShort() ? restAfter(turn, floods) : 0),
    refusal: lane =>
      new FloodError(429, 'Too many requests are waiting; try again in a moment.', `Requests of ${lane}`, 1),
  })
  return {
    take: async (place, task) => {
      let turn = queue.enter(place)
      await turn
      // Also a turn that somebody of the task still waits for.
      const giveBack = () => void turn.then(leave => leave()).catch(() => undefined)
      // Parts of a task may wait side by side: the first gives its one turn back, the last takes one again.
      let waiting = 0
      let ended = false
      const outside = async <Result>(wait: () => Promise<Result>) => {
        waiting += 1
        if (waiting === 1) giveBack()
        try {
          return await wait()
        } finally {
          waiting -= 1
          if (waiting === 0 && !ended) turn = queue.enter(place)
          await turn
        }
      }
      try {
        return await withinTurn(outside, task)
      } finally {
        ended = true
        giveBack()
      }
    },
  }
}
