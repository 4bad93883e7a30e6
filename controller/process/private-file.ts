import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Writes a file atomically and durably, readable only by root. After a crash, even of the machine, the file has its
 * former content or the new one; once this returns, the new one.
 */
export function writePrivateFile(path: string, content: string, mode = 0o600): void {
  write(path, content, mode, temporary => renameSync(temporary, path))
}

/** As writePrivateFile, for a new file. If several processes create it concurrently, the first one's content stays. */
export function makePrivateFile(path: string, content: string, mode = 0o600): void {
  write(path, content, mode, temporary => {
    try {
      linkSync(temporary, path)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  })
}

const UNFINISHED = /\.new-\d+$/

/** The file that a process was writing when it was killed: `openrc` for `openrc.new-312`. Null for other names. */
export const unfinishedFile = (name: string): string | null =>
  UNFINISHED.test(name) ? name.replace(UNFINISHED, '') : null

function write(path: string, content: string, mode: number, moveIntoPlace: (temporary: string) => void): void {
  const directory = dirname(path)
  mkdirSync(directory, { recursive: true, mode: 0o711 })
  const temporary = `${path}.new-${process.pid}`
  rmSync(temporary, { force: true })
  try {
    writeThrough(temporary, content, mode)
    moveIntoPlace(temporary)
  } finally {
    rmSync(temporary, { force: true })
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

/** Without this, a crash could lose the new name after other data already relies on the file. */
function syncDirectory(path: string): void {
  const descriptor = openSync(path, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
