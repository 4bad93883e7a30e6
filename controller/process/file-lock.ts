import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'

/** Held until it is released or this process has ended, however that happens. */
export type FileLock = { release: () => void }

/**
 * Locks a file or directory, which must be there, against other processes and against other callers in this one.
 * @param waitSeconds how long to wait for one that has it
 * @returns null if that one still has it
 * @throws Error if it cannot be locked at all
 */
export async function lockFile(path: string, waitSeconds: number): Promise<FileLock | null> {
  const file = openSync(path, 'r')
  try {
    // The lock belongs to what was opened, which the program shares with this process; so it outlives the program.
    const words = ['--pdeathsig', 'KILL', 'flock', '--exclusive', '--timeout', String(waitSeconds), '3']
    const flock = spawn('setpriv', words, { stdio: ['ignore', 'ignore', 'pipe', file] })
    let said = ''
    flock.stderr?.setEncoding('utf8').on('data', (text: string) => (said += text))
    const [status] = await once(flock, 'close')
    if (status === 0) return { release: () => closeSync(file) }
    if (status !== 1 || said !== '') throw new Error(`Cannot lock ${path}: ${said.trim() || `status ${status}`}`)
  } catch (error) {
    closeSync(file)
    throw error
  }
  closeSync(file)
  return null
}
