import { identityOf, isAlive, memoryOf } from '../process/process-table.js'
import type { OldWorkerLimits } from '../protocol/desired.js'

/** A worker of a former configuration, which lives as long as its connections. */
export type OldWorker = { pid: number; startTime: number; memoryKib: number }

/** What is known of those that still run. */
export function observeOldWorkers(pids: readonly number[]): OldWorker[] {
  return pids.flatMap(pid => {
    const identity = identityOf(pid)
    return identity === null ? [] : [{ pid, startTime: identity.startTime, memoryKib: memoryOf(pid) }]
  })
}

/** Which of them have to end for the rest to be within the limits: the oldest ones. Pure. */
export function surplusOf(workers: readonly OldWorker[], { most, memoryMib }: OldWorkerLimits): OldWorker[] {
  const oldestFirst = workers.toSorted((one, other) => one.startTime - other.startTime || one.pid - other.pid)
  let memoryKib = oldestFirst.reduce((sum, worker) => sum + worker.memoryKib, 0)
  return oldestFirst.filter((worker, index) => {
    const isTooMuch = oldestFirst.length - index > most || memoryKib > memoryMib * 1024
    if (isTooMuch) memoryKib -= worker.memoryKib
    return isTooMuch
  })
}

/** It dies at once when it is asked to; one that is still there after so long hangs. */
const END_MS = 5_000

/** Ends old workers. */
export type OldWorkerEnds = {
  /** Asks it to end. */
  end: (worker: OldWorker) => void
  /** Whether it was asked before; one that does not obey in time is killed. */
  isEnding: (worker: OldWorker) => boolean
}

export function createOldWorkerEnds(): OldWorkerEnds {
  const askedAt = new Map<string, number>()
  const keyOf = ({ pid, startTime }: OldWorker) => `${pid} ${startTime}`
  const kill = (worker: OldWorker, signal: 'SIGTERM' | 'SIGKILL') => {
    if (isAlive(worker)) process.kill(worker.pid, signal)
  }
  return {
    end: worker => {
      if (askedAt.size > 1_000) askedAt.clear()
      askedAt.set(keyOf(worker), performance.now())
      kill(worker, 'SIGTERM')
    },
    isEnding: worker => {
      const asked = askedAt.get(keyOf(worker))
      if (asked === undefined) return false
      if (performance.now() - asked > END_MS) kill(worker, 'SIGKILL')
      return true
    },
  }
}
