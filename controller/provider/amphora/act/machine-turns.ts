import { availableParallelism } from 'node:os'
import { createFairQueue } from '../../../process/fair-queue.js'
import { areProcessorsShort } from '../../../process/pressure.js'

/** On whose account a machine is worked at; null for those that wait for a project. */
export type Cause = { projectId: string | null; isRepair: boolean }

const LONGEST_REST_MS = 5000

export type MachineTurns = {
  /** Makes or removes a machine or an interface of one when it is its turn. */
  take: <Result>(cause: Cause, task: () => Promise<Result>) => Promise<Result>
}

/**
 * Turns of projects at the machines of this host. The kernel makes namespaces, mounts and network interfaces one after another, and six
 * machines at once are made later than one after another: what a project asks for waits for what it asked for before, and repairs for no other project.
 * Where processors are short, a project that has more to do rests as long as it worked, 5 s at most.
 */
export function createMachineTurns(
  processors: number = availableParallelism(),
  areShort: () => boolean = areProcessorsShort,
): MachineTurns {
  const queue = (atOnce: number, atOncePerLane: number, restMilliseconds: (turn: number) => number) =>
    createFairQueue({
      atOnce,
      atOncePerLane,
      restMilliseconds,
      // Who waits has a slot of the worker, or is in the warm pool: there are not many.
      mostWaiting: Number.POSITIVE_INFINITY,
      mostWaitingPerLane: Number.POSITIVE_INFINITY,
      refusal: (lane, reason) => new Error(`No turn at the machines for ${lane}: ${reason}`),
    })
  const wishes = queue(Math.max(2, processors), Math.max(1, Math.floor(processors / 2)), turn =>
    areShort() ? Math.min(turn, LONGEST_REST_MS) : 0,
  )
  const repairs = queue(Number.POSITIVE_INFINITY, Math.max(2, processors), () => 0)
  return {
    take: async ({ projectId, isRepair }, task) => {
      const place = [projectId === null ? 'warm amphorae' : `project ${projectId}`, ''] as const
      const leave = await (isRepair ? repairs : wishes).enter(place)
      try {
        return await task()
      } finally {
        leave()
      }
    },
  }
}
