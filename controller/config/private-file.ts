import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Writes a file that only root may read, whole or not at all: a crash at any instant leaves the former content or the new one.
 */
export function writePrivateFile(path: string, content: string, mode = 0o600): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o711 })
  const aside = `${path}.new-${process.pid}`
  rmSync(aside, { force: true })
  const descriptor = openSync(aside, 'wx', mode)
  try {
    writeSync(descriptor, content)
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
  renameSync(aside, path)
}
