import { availableParallelism } from 'node:os'

/** Node.js's default without UV_THREADPOOL_SIZE; a running process cannot change it. */
const DEFAULT_THREADS = 4

/** UV_THREADPOOL_SIZE for a process that computes on every processor; leaves two threads for files and DNS. */
export const THREADS_FOR_ALL_PROCESSORS = Math.max(DEFAULT_THREADS, availableParallelism() + 2)

/**
 * The number of long computations that may run on native threads at once: one per processor, leaving one thread
 * free.
 */
export function computationsAtOnce(environment: NodeJS.ProcessEnv = process.env): number {
  const threads = Number(environment.UV_THREADPOOL_SIZE) || DEFAULT_THREADS
  return Math.max(1, Math.min(availableParallelism(), threads - 1))
}
