/** Unwrapped keys (or handles of them) that are kept for a while, so that not each use unwraps anew. */
export type KeyCache<Key> = {
  get: (id: string) => Key | undefined
  set: (id: string, key: Key) => void
  forget: (id: string) => void
  clear: () => void
}

/**
 * @param most the oldest goes when there are more
 * @param milliseconds after which a key goes, used or not: one that was erased meanwhile is in no memory then, give or take as long again
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
  let timer: NodeJS.Timeout | undefined
  const dropInTime = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined
      try {
        dropEnded(performance.now())
      } catch {
        // A token that is gone has forgotten its keys; whoever asks it next learns that.
      }
      if (kept.size > 0) dropInTime()
    }, milliseconds).unref()
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
      dropInTime()
    },
    forget,
    clear: () => {
      clearTimeout(timer)
      timer = undefined
      for (const id of [...kept.keys()]) forget(id)
    },
  }
}
