import { copyFileSync, existsSync, openSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'

const MAX_BYTES = 10 * 1024 * 1024

export const logFile = (stateDirectory: string, name: string): string => join(stateDirectory, 'log', `${name}.log`)

/** Opens a log in append mode: truncating it while a process writes to it then leaves no hole. */
export function openLog(path: string): number {
  return openSync(path, 'a', 0o600)
}

/**
 * Copies a log above 10 MiB to `<path>.1` and truncates it, so two files of about that size remain. Lines written
 * during the copy may be lost. On a full disk, drops the whole log to free space. Never throws: the supervisor must
 * survive it.
 */
export function rotateLog(path: string, maxBytes = MAX_BYTES): void {
  try {
    if (!existsSync(path) || statSync(path).size <= maxBytes) return
    try {
      copyFileSync(path, `${path}.1`)
    } catch {
      rmSync(`${path}.1`, { force: true, recursive: true })
    }
    truncateSync(path, 0)
  } catch {
    // The log was removed or the disk is faulty; the next call tries again.
  }
}

/** The last lines of a log in readable form: the messages of JSON lines, and other lines unchanged. */
export function lastLines(path: string, lines: number): string {
  if (!existsSync(path)) return ''
  return readFileSync(path, 'utf8').trimEnd().split('\n').slice(-lines).map(plain).join('\n')
}

function plain(line: string): string {
  try {
    const { msg, err } = JSON.parse(line) as { msg?: string; err?: { message?: string } }
    return [msg, err?.message].filter(part => part !== undefined && part !== '').join(': ')
  } catch {
    return line
  }
}
