import { readFileSync, statSync } from 'node:fs'
import { LOG_DIRECTORY } from '../protocol/paths.js'
import { significantWords } from './validate.js'

/** What HAProxy prints: starting, reloading, dying. */
export const HAPROXY_MESSAGES = `${LOG_DIRECTORY}/haproxy-messages.log`

const LAST_WORDS_SIZE = 4_000
/** Exit codes of a worker that somebody has killed: SIGKILL, SIGTERM. */
const KILLED = ['137', '143']

/** How many bytes HAProxy has printed; a mark for `wordsSince`. */
export function printedSize(): number {
  return statSync(HAPROXY_MESSAGES, { throwIfNoEntry: false })?.size ?? 0
}

/** What HAProxy has printed that an operator should read. @param mark where to begin, as `printedSize` returned it */
export function wordsSince(mark: number): string {
  return significantWords(printedFrom(mark))
}

/** The end of what HAProxy has printed, as far as an operator should read it. */
export function lastWords(): string {
  return wordsSince(Math.max(0, printedSize() - LAST_WORDS_SIZE))
}

/**
 * Whether a worker that is gone had come to its end: with its last connection, and nobody killed it. The master tells of the end of each
 * worker, before its own. One that has nothing left may still crash in cleaning up, as 2.6 does.
 */
export function workerFinished(pid: number): boolean {
  const ends = new RegExp(`worker \\(${pid}\\) exited with code (\\d+)`, 'g')
  const code = [...printedFrom(0).matchAll(ends)].at(-1)?.[1]
  return code !== undefined && !KILLED.includes(code)
}

function printedFrom(offset: number): string {
  try {
    const bytes = readFileSync(HAPROXY_MESSAGES)
    // The file may have been cut meanwhile.
    return bytes.subarray(Math.min(offset, bytes.length)).toString('utf8')
  } catch {
    return ''
  }
}
