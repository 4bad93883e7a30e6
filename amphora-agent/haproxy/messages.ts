import { readFileSync, statSync } from 'node:fs'
import { LOG_DIRECTORY } from '../protocol/paths.js'
import { significantOutput } from './validate.js'

/** HAProxy's own output, at its start, reload and exit. */
export const HAPROXY_MESSAGES = `${LOG_DIRECTORY}/haproxy-messages.log`

const LAST_OUTPUT_SIZE = 4_000
/** Exit codes of a killed worker: SIGKILL, SIGTERM. */
const KILLED = ['137', '143']

/** The size of HAProxy's output so far; a mark for `outputSince`. */
export function outputSize(): number {
  return statSync(HAPROXY_MESSAGES, { throwIfNoEntry: false })?.size ?? 0
}

/** The significant part of HAProxy's output. @param mark where to begin, as returned by `outputSize` */
export function outputSince(mark: number): string {
  return significantOutput(outputFrom(mark))
}

/** The significant part of the end of HAProxy's output. */
export function lastOutput(): string {
  return outputSince(Math.max(0, outputSize() - LAST_OUTPUT_SIZE))
}

/**
 * Whether a worker that is gone exited with its last connection, and was not killed. The master reports the exit of
 * each worker before its own. A crash counts as finished: a worker without connections may crash while cleaning up,
 * as 2.6 does.
 */
export function workerFinished(pid: number): boolean {
  const ends = new RegExp(`worker \\(${pid}\\) exited with code (\\d+)`, 'g')
  const code = [...outputFrom(0).matchAll(ends)].at(-1)?.[1]
  return code !== undefined && !KILLED.includes(code)
}

function outputFrom(offset: number): string {
  try {
    const bytes = readFileSync(HAPROXY_MESSAGES)
    // The file may have been truncated since.
    return bytes.subarray(Math.min(offset, bytes.length)).toString('utf8')
  } catch {
    return ''
  }
}
