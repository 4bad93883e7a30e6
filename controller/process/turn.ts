import { AsyncLocalStorage } from 'node:async_hooks'

/** Gives the turn back while waiting and takes a new one afterwards. */
type Outside = <Result>(wait: () => Promise<Result>) => Promise<Result>

const present = new AsyncLocalStorage<Outside>()

/** Runs a task that holds a turn. @param outside waits without the turn */
export const withinTurn = <Result>(outside: Outside, task: () => Promise<Result>): Promise<Result> =>
  present.run(outside, task)

/**
 * Runs a task that keeps its turn while it waits, because it holds a resource that others need, such as a
 * database connection.
 */
export const keepingTurn = <Result>(task: () => Promise<Result>): Promise<Result> => present.exit(task)

/** Waits for other work without holding the current task's turn, if there is one. */
export function outsideTurn<Result>(wait: () => Promise<Result>): Promise<Result> {
  const outside = present.getStore()
  return outside === undefined ? wait() : outside(() => present.exit(wait))
}
