import { AsyncLocalStorage } from 'node:async_hooks'

/** Gives the turn back while it waits, and takes another one afterwards. */
type Outside = <Result>(wait: () => Promise<Result>) => Promise<Result>

const present = new AsyncLocalStorage<Outside>()

/** Runs a task that has a turn, for as long as it needs one. @param outside how it waits without it */
export const withinTurn = <Result>(outside: Outside, task: () => Promise<Result>): Promise<Result> =>
  present.run(outside, task)

/** Runs a task that holds what others need, such as a connection to the database: its turn is not given back while it waits. */
export const keepingTurn = <Result>(task: () => Promise<Result>): Promise<Result> => present.exit(task)

/** Waits for somebody else without holding the turn of the present task, if it has one. What is waited for has no turn to give back. */
export function outsideTurn<Result>(wait: () => Promise<Result>): Promise<Result> {
  const outside = present.getStore()
  return outside === undefined ? wait() : outside(() => present.exit(wait))
}
