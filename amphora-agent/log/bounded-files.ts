import { copyFileSync, statSync, truncateSync } from 'node:fs'
import { atEveryMoment } from '../process/moments.js'

const MAX_SIZE = 1024 * 1024

/**
 * Keeps each file, and one predecessor (`.1`), near 1 MiB. The writers append to an open file, so it is copied and cut rather than renamed.
 * @returns a function that ends it
 */
export function keepBounded(paths: readonly string[]): () => void {
  return atEveryMoment(() => {
    for (const path of paths) {
      try {
        if (statSync(path).size <= MAX_SIZE) continue
        copyFileSync(path, `${path}.1`)
        truncateSync(path)
      } catch {
        // Not there yet, or no room for the copy: look again later.
      }
    }
  })
}
