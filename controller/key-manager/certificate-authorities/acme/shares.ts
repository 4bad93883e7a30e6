/** Turns at a CA within this process. A CA or a hook that hangs then holds up only some of the worker's orders. */
export type Shares = {
  /** @returns a function that ends the turn; null if there is none now */
  take: (projectId: string) => (() => void) | null
}

export function createShares(total: number, perProject: number): Shares {
  const held = new Map<string, number>()
  let sum = 0
  return {
    take: projectId => {
      const own = held.get(projectId) ?? 0
      if (sum >= total || own >= perProject) return null
      sum++
      held.set(projectId, own + 1)
      return () => {
        sum--
        const left = (held.get(projectId) ?? 1) - 1
        if (left === 0) held.delete(projectId)
        else held.set(projectId, left)
      }
    },
  }
}
