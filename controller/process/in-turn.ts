/**
 * @param wait waits for the tasks before
 * @returns a function that runs tasks with the same key one after another, even after failures, and tasks with
 *   different keys concurrently
 */
export function createQueues(
  wait: (before: () => Promise<unknown>) => Promise<unknown> = before => before(),
): <T>(key: string, task: () => Promise<T>) => Promise<T> {
  const last = new Map<string, Promise<unknown>>()
  return (key, task) => {
    const before = last.get(key)
    const turn = before === undefined ? task() : wait(() => before.catch(() => undefined)).then(task)
    last.set(key, turn)
    const forget = () => {
      if (last.get(key) === turn) last.delete(key)
    }
    turn.then(forget, forget)
    return turn
  }
}
