/** Values by key, each until its own end, at most so many: then the one that was not used for longest goes. */
export type TokenCache<T> = {
  /** @returns undefined when there is none, or its time has ended */
  get: (key: string) => T | undefined
  /** @param until as `performance.now()` tells time */
  put: (key: string, value: T, until: number) => void
}

export function createTokenCache<T>(most: number): TokenCache<T> {
  const entries = new Map<string, { value: T; until: number }>()
  return {
    get: key => {
      const entry = entries.get(key)
      if (entry === undefined) return undefined
      entries.delete(key)
      if (entry.until <= performance.now()) return undefined
      // A Map keeps the order in which keys came: the one used last goes to the end.
      entries.set(key, entry)
      return entry.value
    },
    put: (key, value, until) => {
      entries.delete(key)
      entries.set(key, { value, until })
      const [oldest] = entries.keys()
      if (entries.size > most && oldest !== undefined) entries.delete(oldest)
    },
  }
}
