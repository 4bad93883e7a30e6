import { closeSync, existsSync, openSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { removeLeftovers } from '../../process/leftovers.js'
import { reasonOf, remedyFor } from '../faults/system-fault.js'
import { OperatorError } from '../operator-error.js'

/**
 * Writes a command's result to a file, readable only by its owner, which appears under its name once it is complete. What
 * killed commands have written for the same file is removed.
 * A path that is no plain file, such as /dev/stdout, is written directly.
 * @param write gets the path to write to
 * @throws OperatorError before `write` is called when the file cannot be written
 */
export async function writeOutput(path: string, write: (path: string) => Promise<void>): Promise<void> {
  const unfinished = `${path}.new-${process.pid}`
  const remove = () => rmSync(unfinished, { force: true })
  try {
    if (existsSync(path) && !statSync(path).isFile()) {
      closeSync(openSync(path, 'r+'))
      return await write(path)
    }
    removeLeftovers(dirname(path), `${basename(path)}.new-`, 'files')
    closeSync(openSync(unfinished, 'wx', 0o600))
  } catch (error) {
    throw unwritable(path, error)
  }
  process.once('exit', remove)
  try {
    await write(unfinished)
    renameSync(unfinished, path)
  } catch (error) {
    throw isAbout(unfinished, error) ? unwritable(path, error) : error
  } finally {
    remove()
    process.off('exit', remove)
  }
}

/** A full disk is reported without a path. */
const isAbout = (path: string, error: unknown): boolean =>
  error instanceof Error &&
  (('path' in error && error.path === path) || ('syscall' in error && error.syscall === 'write'))

function unwritable(path: string, error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException
  if (code === undefined) return error
  if (code === 'ENOENT') {
    return new OperatorError(
      `Cannot write ${path}: its directory does not exist (ENOENT). Create it (mkdir -p), or name another file.`,
    )
  }
  return new OperatorError(`Cannot write ${path}: ${reasonOf(code)} (${code}). ${remedyFor(code, path)}.`)
}
