import { copyFileSync, existsSync, openSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'

const MOST_BYTES = 10 * 1024 * 1024

export const logFile = (stateDirectory: string, name: string): string => join(stateDirectory, 'log', `${name}.log`)

/** Opened for appending, so that truncating it while it is written leaves no hole. */
export function openLog(path: string): number {
  return openSync(path, 'a', 0o600)
}

/**
 * Moves what a log holds into `<path>.1` when it has grown large: at most twice 10 MiB are kept. Lines of that instant may be lost, and all of
 * them when the disk is full: that is what frees it. Never throws, since whoever watches over the services calls it.
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
    // Gone meanwhile, or the disk is broken: it is looked at again.
  }
}

/** The last lines of a log in words for people: messages of JSON lines, other lines as they are. */
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
