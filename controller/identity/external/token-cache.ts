/** A cache whose entries expire individually. When it is full, the least recently used entry is evicted. */
export type TokenCache<T> = {
  /** @returns undefined if the entry is missing or expired */
  get: (key: string) => T | undefined
  /** @param until the expiry, in `performance.now()` time */
  put: (key: string, value: T, until: number) => void
}

export function createTokenCache<T>(maxEntries: number): TokenCache<T> {
  const entries = new Map<string, { value: T; until: number }>()
  return {
    get: key => {
      const entry = entries.get(key)
      if (entry === undefined) return undefined
      entries.delete(key)
      if (entry.until <= performance.now()) return undefined
      // A Map keeps insertion order: inserting the entry again makes it the most recent.
      entries.set(key, entry)
      return entry.value
    },
    put: (key, value, until) => {
      entries.delete(key)
      entries.set(key, { value, until })
      const [oldest] = entries.keys()
      if (entries.size > maxEntries && oldest !== undefined) entries.delete(oldest)
    },
  }
}
