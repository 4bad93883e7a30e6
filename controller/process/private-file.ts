import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Writes a file that only root may read, whole or not at all: a crash at any instant, of the machine too, leaves the former content or the new one,
 * and once this returns it is the new one.
 */
export function writePrivateFile(path: string, content: string, mode = 0o600): void {
  placing(path, content, mode, aside => renameSync(aside, path))
}

/**
 * The same for a file that is not there yet: of several that make it at once one does, and the content of that one stays.
 */
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

/** Without it the machine may come back from a crash with the former name, after what relies on the new file was stored elsewhere. */
function syncDirectory(path: string): void {
  const descriptor = openSync(path, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
