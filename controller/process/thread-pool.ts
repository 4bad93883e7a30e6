import { availableParallelism } from 'node:os'

/** What Node.js starts when UV_THREADPOOL_SIZE does not say otherwise; a running process cannot change it. */
const DEFAULT_THREADS = 4

/** UV_THREADPOOL_SIZE for a process that computes on every processor: two threads are left for files and names. */
export const THREADS_FOR_ALL_PROCESSORS = Math.max(DEFAULT_THREADS, availableParallelism() + 2)

/** How many long computations this process may hand to native threads at once: all processors, but not all threads. */
export function computationsAtOnce(environment: NodeJS.ProcessEnv = process.env): number {
  const threads = Number(environment.UV_THREADPOOL_SIZE) || DEFAULT_THREADS
  return Math.max(1, Math.min(availableParallelism(), threads - 1))
}
