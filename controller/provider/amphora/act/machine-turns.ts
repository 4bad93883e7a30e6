import { availableParallelism } from 'node:os'
import { createFairQueue } from '../../../process/fair-queue.js'
import { areProcessorsShort } from '../../../process/pressure.js'

/** Who a machine operation is for; `projectId` is null for warm amphorae. */
export type Cause = { projectId: string | null; isRepair: boolean }

const MAX_REST_MS = 5000

export type MachineTurns = {
  /** Runs a task that creates or removes a machine or an interface, once it is its turn. */
  take: <Result>(cause: Cause, task: () => Promise<Result>) => Promise<Result>
}

/**
 * Schedules machine operations of this host fairly between projects. The kernel creates namespaces, mounts and
 * network interfaces serially; creating six machines in parallel takes longer than one after another. A project's
 * requests wait for its earlier ones; repairs wait for no other project. While processors are short, a project
 * with more work pauses as long as its last task took, at most 5 s.
 */
export function createMachineTurns(
  processors: number = availableParallelism(),
  areShort: () => boolean = areProcessorsShort,
): MachineTurns {
  const queue = (maxRunning: number, maxRunningPerLane: number, restMilliseconds: (turn: number) => number) =>
    createFairQueue({
      maxRunning,
      maxRunningPerLane,
      restMilliseconds,
      // Bounded anyway: each waiting task occupies a slot of the worker or belongs to the warm pool.
      maxWaiting: Number.POSITIVE_INFINITY,
      maxWaitingPerLane: Number.POSITIVE_INFINITY,
      refusal: (lane, reason) => new Error(`No turn at the machines for ${lane}: ${reason}`),
    })
  const requests = queue(Math.max(2, processors), Math.max(1, Math.floor(processors / 2)), turn =>
    areShort() ? Math.min(turn, MAX_REST_MS) : 0,
  )
  const repairs = queue(Number.POSITIVE_INFINITY, Math.max(2, processors), () => 0)
  return {
    take: async ({ projectId, isRepair }, task) => {
      const place = [projectId === null ? 'warm amphorae' : `project ${projectId}`, ''] as const
      const leave = await (isRepair ? repairs : requests).enter(place)
      try {
        return await task()
      } finally {
        leave()
      }
    },
  }
}
