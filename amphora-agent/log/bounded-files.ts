import { copyFileSync, statSync, truncateSync } from 'node:fs'
import { onEveryTick } from '../time/ticks.js'

const MAX_SIZE = 1024 * 1024

/**
 * Keeps each file, and one predecessor (`.1`), near 1 MiB. The writers append to an open file, so the file is
 * copied and truncated rather than renamed.
 * @returns a function that stops it
 */
export function keepBounded(paths: readonly string[]): () => void {
  return onEveryTick(() => {
    for (const path of paths) bound(path)
  })
}

/** Truncates one file that exceeds the limit. */
export function bound(path: string, maxSize = MAX_SIZE): void {
  try {
    if (statSync(path).size <= maxSize) return
    keepCopy(path)
    truncateSync(path)
  } catch {
    // The file does not exist yet.
  }
}

function keepCopy(path: string): void {
  try {
    copyFileSync(path, `${path}.1`)
  } catch {
    // The disk is full. Losing the log is better than taking space that others need.
  }
}
