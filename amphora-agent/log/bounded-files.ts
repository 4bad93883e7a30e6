import { copyFileSync, statSync, truncateSync } from 'node:fs'

const MAX_SIZE = 1024 * 1024
const LOOK_MS = 2_000

/**
 * Keeps each file, and one predecessor (`.1`), near 1 MiB. The writers append to an open file, so it is copied and cut rather than renamed.
 * @returns a function that ends it
 */
export function keepBounded(paths: readonly string[]): () => void {
  const timer = setInterval(() => {
    for (const path of paths) {
      try {
        if (statSync(path).size <= MAX_SIZE) continue
        copyFileSync(path, `${path}.1`)
        truncateSync(path)
      } catch {
        // Not there yet, or no room for the copy: look again later.
      }
    }
  }, LOOK_MS)
  timer.unref()
  return () => clearInterval(timer)
}
