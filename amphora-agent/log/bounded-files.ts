import { copyFileSync, statSync, truncateSync } from 'node:fs'
import { atEveryMoment } from '../time/moments.js'

const MAX_SIZE = 1024 * 1024

/**
 * Keeps each file, and one predecessor (`.1`), near 1 MiB. The writers append to an open file, so it is copied and cut rather than renamed.
 * @returns a function that ends it
 */
export function keepBounded(paths: readonly string[]): () => void {
  return atEveryMoment(() => {
    for (const path of paths) bound(path)
  })
}

/** Cuts one file that has grown. */
export function bound(path: string, maxSize = MAX_SIZE): void {
  try {
    if (statSync(path).size <= maxSize) return
    keepCopy(path)
    truncateSync(path)
  } catch {
    // Not there yet.
  }
}

function keepCopy(path: string): void {
  try {
    copyFileSync(path, `${path}.1`)
  } catch {
    // No place for it: what it says is lost, rather than the room that others need.
  }
}
