/** Unwrapped keys (or handles of them) that are kept for a while, so that not each use unwraps anew. */
export type KeyCache<Key> = {
  get: (id: string) => Key | undefined
  set: (id: string, key: Key) => void
  forget: (id: string) => void
  clear: () => void
}

/**
 * @param most the oldest goes when there are more
 * @param milliseconds after which a key is unwrapped anew, used or not: a key that was erased meanwhile ends then at the latest
 * @param onDrop called with each key that goes
 */
export function createKeyCache<Key>(
  most: number,
  milliseconds: number,
  onDrop: (key: Key) => void = () => undefined,
): KeyCache<Key> {
  const kept = new Map<string, { key: Key; until: number }>()

  const forget = (id: string): void => {
    const entry = kept.get(id)
    kept.delete(id)
    if (entry !== undefined) onDrop(entry.key)
  }
  // Entries stand in the order of their ends, since all are kept equally long.
  const dropEnded = (now: number): void => {
    for (const [id, { until }] of kept) {
      if (until > now) return
      forget(id)
    }
  }

  return {
    get: id => {
      dropEnded(performance.now())
      return kept.get(id)?.key
    },
    set: (id, key) => {
      forget(id)
      const oldest = kept.size >= most ? kept.keys().next().value : undefined
      if (oldest !== undefined) forget(oldest)
      kept.set(id, { key, until: performance.now() + milliseconds })
    },
    forget,
    clear: () => {
      for (const id of [...kept.keys()]) forget(id)
    },
  }
}
