import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Writes a file atomically and durably, readable by root alone: after a crash, of the machine too, it has the former content or the new one;
 * once this returns, the new one.
 */
export function writePrivateFile(path: string, content: string, mode = 0o600): void {
  placing(path, content, mode, aside => renameSync(aside, path))
}

/** Creates a file in the same way. If several processes create it at once, the content of the first stays. */
export function makePrivateFile(path: string, content: string, mode = 0o600): void {
  placing(path, content, mode, aside => {
    try {
      linkSync(aside, path)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  })
}

function placing(path: string, content: string, mode: number, place: (aside: string) => void): void {
  const directory = dirname(path)
  mkdirSync(directory, { recursive: true, mode: 0o711 })
  const aside = `${path}.new-${process.pid}`
  rmSync(aside, { force: true })
  try {
    writeThrough(aside, content, mode)
    place(aside)
  } finally {
    rmSync(aside, { force: true })
  }
  syncDirectory(directory)
}

function writeThrough(path: string, content: string, mode: number): void {
  const descriptor = openSync(path, 'wx', mode)
  try {
    writeFileSync(descriptor, content)
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Without this the new name may be lost in a crash after other data already relies on the file. */
function syncDirectory(path: string): void {
  const descriptor = openSync(path, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
