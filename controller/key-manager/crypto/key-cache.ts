/** Caches unwrapped keys, or handles of them, so that not every use unwraps. */
export type KeyCache<Key> = {
  get: (id: string) => Key | undefined
  set: (id: string, key: Key) => void
  forget: (id: string) => void
  clear: () => void
}

/**
 * @param maxKeys beyond which the oldest is dropped
 * @param milliseconds lifetime of a key, used or not. A key that was erased elsewhere leaves memory within
 *   twice this time.
 * @param onDrop called with each dropped key
 */
export function createKeyCache<Key>(
  maxKeys: number,
  milliseconds: number,
  onDrop: (key: Key) => void = () => undefined,
): KeyCache<Key> {
  const entries = new Map<string, { key: Key; expiresAt: number }>()

  const forget = (id: string): void => {
    const entry = entries.get(id)
    entries.delete(id)
    if (entry !== undefined) onDrop(entry.key)
  }
  // All keys have the same lifetime, so entries are in order of expiry.
  const dropExpired = (now: number): void => {
    for (const [id, { expiresAt }] of entries) {
      if (expiresAt > now) return
      forget(id)
    }
  }
  let timer: NodeJS.Timeout | undefined
  const scheduleDrop = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined
      try {
        dropExpired(performance.now())
      } catch {
        // A token that fails here has lost its keys anyway; the next call reports the failure.
      }
      if (entries.size > 0) scheduleDrop()
    }, milliseconds).unref()
  }

  return {
    get: id => {
      dropExpired(performance.now())
      return entries.get(id)?.key
    },
    set: (id, key) => {
      forget(id)
      const oldest = entries.size >= maxKeys ? entries.keys().next().value : undefined
      if (oldest !== undefined) forget(oldest)
      entries.set(id, { key, expiresAt: performance.now() + milliseconds })
      scheduleDrop()
    },
    forget,
    clear: () => {
      clearTimeout(timer)
      timer = undefined
      for (const id of [...entries.keys()]) forget(id)
    },
  }
}
