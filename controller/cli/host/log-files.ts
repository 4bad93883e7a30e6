import { copyFileSync, existsSync, openSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'

const MOST_BYTES = 10 * 1024 * 1024

export const logFile = (stateDirectory: string, name: string): string => join(stateDirectory, 'log', `${name}.log`)

/** Opens a log for appending, so that truncating it while it is written leaves no hole. */
export function openLog(path: string): number {
  return openSync(path, 'a', 0o600)
}

/**
 * Copies a log that has grown large to `<path>.1` and truncates it, so at most twice 10 MiB are kept. Lines written meanwhile may be lost. On a
 * full disk the whole log is dropped, to free space. Never throws: the supervisor must survive it.
 */
export function rotateLog(path: string, mostBytes = MOST_BYTES): void {
  try {
    if (!existsSync(path) || statSync(path).size <= mostBytes) return
    try {
      copyFileSync(path, `${path}.1`)
    } catch {
      rmSync(`${path}.1`, { force: true, recursive: true })
    }
    truncateSync(path, 0)
  } catch {
    // The log has gone or the disk is faulty; the next call tries again.
  }
}

/** The last lines of a log, readable: the messages of JSON lines, other lines unchanged. */
export function lastWords(path: string, lines: number): string {
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
