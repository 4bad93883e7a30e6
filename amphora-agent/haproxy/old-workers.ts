import { identityOf, isAlive, memoryOf } from '../process/process-table.js'
import type { OldWorkerLimits } from '../protocol/desired.js'

/** A worker of a former configuration, which runs until its connections are closed. */
export type OldWorker = { pid: number; startTime: number; memoryKib: number }

/** Reads start time and memory of those that still run. */
export function observeOldWorkers(pids: readonly number[]): OldWorker[] {
  return pids.flatMap(pid => {
    const identity = identityOf(pid)
    return identity === null ? [] : [{ pid, startTime: identity.startTime, memoryKib: memoryOf(pid) }]
  })
}

/** The oldest workers, which must end for the rest to be within the limits. Pure. */
export function findSurplus(workers: readonly OldWorker[], { most, memoryMib }: OldWorkerLimits): OldWorker[] {
  const oldestFirst = workers.toSorted((one, other) => one.startTime - other.startTime || one.pid - other.pid)
  let memoryKib = oldestFirst.reduce((sum, worker) => sum + worker.memoryKib, 0)
  return oldestFirst.filter((worker, index) => {
    const isTooMuch = oldestFirst.length - index > most || memoryKib > memoryMib * 1024
    if (isTooMuch) memoryKib -= worker.memoryKib
    return isTooMuch
  })
}

/** A worker exits at once on SIGTERM; one that still runs after this time hangs. */
const EXIT_MS = 5_000

/** Ends old workers. */
export type OldWorkerTerminator = {
  /** Terminates the worker. */
  terminate: (worker: OldWorker) => void
  /** Whether it was terminated before. Kills it if it still runs after END_MS. */
  isTerminating: (worker: OldWorker) => boolean
}

export function createOldWorkerTerminator(): OldWorkerTerminator {
  const askedAt = new Map<string, number>()
  const keyOf = ({ pid, startTime }: OldWorker) => `${pid} ${startTime}`
  const kill = (worker: OldWorker, signal: 'SIGTERM' | 'SIGKILL') => {
    if (isAlive(worker)) process.kill(worker.pid, signal)
  }
  return {
    terminate: worker => {
      if (askedAt.size > 1_000) askedAt.clear()
      askedAt.set(keyOf(worker), performance.now())
      kill(worker, 'SIGTERM')
    },
    isTerminating: worker => {
      const asked = askedAt.get(keyOf(worker))
      if (asked === undefined) return false
      if (performance.now() - asked > EXIT_MS) kill(worker, 'SIGKILL')
      return true
    },
  }
}
