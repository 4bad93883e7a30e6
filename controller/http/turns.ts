import { createFairQueue, type Place } from '../process/fair-queue.js'
import { areProcessorsShort } from '../process/pressure.js'
import { withinTurn } from '../process/turn.js'
import { FloodError } from './errors.js'

/** Fewer than the pool's database connections, so that requests wait here, in fair order, and not for the pool. */
const MAX_RUNNING = 8
const MAX_RUNNING_PER_LANE = 2
/** While others send requests, a project occupies the event loop and the database with one at a time. */
const MAX_RUNNING_PER_LANE_CONTENDED = 1
/**
 * When processors are short, a lane with a backlog rests after each turn for as long as the turn took, which halves its
 * turns. If its backlog lasts and others send requests, it rests four times as long, which leaves it a fifth.
 */
const RESTS_PER_TURN = 1
const RESTS_PER_TURN_OF_FLOOD = 4
const MAX_REST_MS = 2000
const MAX_WAITING = 2048
const MAX_WAITING_PER_LANE = 256

/** The rest after a turn, both in milliseconds. Pure. */
export const restAfter = (turn: number, floods: boolean): number =>
  Math.min((floods ? RESTS_PER_TURN_OF_FLOOD : RESTS_PER_TURN) * turn, MAX_REST_MS)

export type Turns = {
  /** Runs a task when its turn comes. @throws FloodError 429 when too many of its lane are waiting */
  take: <Result>(place: Place, task: () => Promise<Result>) => Promise<Result>
}

/**
 * Gives requests of different projects turns at the event loop and the database, so that no project delays
 * others for long.
 */
export function createTurns(): Turns {
  const queue = createFairQueue({
    maxRunning: MAX_RUNNING,
    maxRunningPerLane: MAX_RUNNING_PER_LANE,
    maxRunningPerLaneContended: MAX_RUNNING_PER_LANE_CONTENDED,
    maxWaiting: MAX_WAITING,
    maxWaitingPerLane: MAX_WAITING_PER_LANE,
    restMilliseconds: (turn, floods) => (areProcessorsShort() ? restAfter(turn, floods) : 0),
    refusal: lane =>
      new FloodError(429, 'Too many requests are waiting; try again in a moment.', `Requests of ${lane}`, 1),
  })
  return {
    take: async (place, task) => {
      let turn = queue.enter(place)
      await turn
      // Also gives back a turn for which a part of the task is still waiting.
      const giveBack = () => void turn.then(leave => leave()).catch(() => undefined)
      // Parts of a task may wait concurrently: the first gives the task's turn back, the last takes a new one.
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
