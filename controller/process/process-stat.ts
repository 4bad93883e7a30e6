import { readFileSync } from 'node:fs'

export type ProcessStat = {
  name: string
  /** One letter; `Z` is a zombie, `X` a dead process. */
  state: string
  parent: number
  /** Processor time used. */
  processorMilliseconds: number
  /** Start time in clock ticks since the machine booted. */
  startTicks: number
}

/** Linux reports hundredths of a second to programs, whatever its own clock. */
const TICK_MS = 10

/**
 * Reads /proc/PID/stat.
 * @param process a process id, or `PID/task/TID` for one thread
 * @returns null when there is no such process. @throws Error when that is unknown, such as EMFILE
 */
export function readProcessStat(process: number | string): ProcessStat | null {
  let text: string
  try {
    text = readFileSync(`/proc/${process}/stat`, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return null
    throw error
  }
  // The name in brackets may hold anything, so count the fields from the last bracket.
  const end = text.lastIndexOf(')')
  const fields = text.slice(end + 2).split(' ')
  return {
    name: text.slice(text.indexOf('(') + 1, end),
    state: fields[0] ?? '',
    parent: Number(fields[1]),
    processorMilliseconds: (Number(fields[11]) + Number(fields[12])) * TICK_MS,
    startTicks: Number(fields[19]),
  }
}

/** The start time of a process in clock ticks since the boot; null for a missing process or a zombie. */
export function startTicksOf(pid: number): number | null {
  const stat = readProcessStat(pid)
  return stat === null || stat.state === 'Z' || stat.state === 'X' ? null : stat.startTicks
}

/** Identifies the present boot of this machine. */
export const bootId = (): string => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
