import { readFileSync } from 'node:fs'

export type ProcessStat = {
  name: string
  /** One letter; `Z` and `X` are remains that nobody has collected. */
  state: string
  parent: number
  /** How long it has kept a processor. */
  processorMilliseconds: number
  /** When it started, in clock ticks since the machine booted. */
  startTicks: number
}

/** Linux counts in hundredths of a second for programs, whatever its own clock. */
const TICK_MS = 10

/**
 * Reads /proc/PID/stat.
 * @param process a process id, or `PID/task/TID` for one thread
 * @returns null when there is no such process. @throws Error when it cannot be told, such as EMFILE
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
  // The name in brackets may hold anything, so the fields are counted from behind the last one.
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

/** The start of a process that runs, in clock ticks since the boot; null when there is none, or only its remains. */
export function startTicksOf(pid: number): number | null {
  const stat = readProcessStat(pid)
  return stat === null || stat.state === 'Z' || stat.state === 'X' ? null : stat.startTicks
}

/** Tells one boot of this machine from another. */
export const bootId = (): string => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
