import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** A process. The start time, in clock ticks since boot, distinguishes it from a later process with the same pid. */
export type ProcessIdentity = { pid: number; startTime: number }

/** @returns null if there is no such process or it is a zombie */
export function identityOf(pid: number): ProcessIdentity | null {
  const stat = statOf(pid)
  return stat && { pid, startTime: stat.startTime }
}

export function isAlive({ pid, startTime }: ProcessIdentity): boolean {
  return statOf(pid)?.startTime === startTime
}

/** Whether the process is suspended (SIGSTOP). */
export function isSuspended(pid: number): boolean {
  return ['T', 't'].includes(statOf(pid)?.state ?? '')
}

/**
 * Distinguishes a hung process from a slow one: the CPU time of all its threads in nanoseconds, and whether any of
 * them runs or waits for a CPU.
 */
export function activityOf(pid: number): { work: bigint; running: boolean } {
  const activity = { work: 0n, running: false }
  try {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const [work = '0'] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')
      activity.work += BigInt(work)
      activity.running ||= statOf(`${pid}/task/${thread}`)?.state === 'R'
    }
  } catch {
    // The process exited during the read.
  }
  return activity
}

/** The anonymous resident memory of a process, in KiB; 0 if it has exited. */
export function memoryOf(pid: number): number {
  try {
    return Number(/^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0)
  } catch {
    return 0
  }
}

/** Ticks per second in /proc, on every architecture. */
const TICKS = 100

/** The CPU time of a process with all its threads, in seconds; 0 if it has exited. */
export const cpuSecondsOf = (pid: number): number => (statOf(pid)?.cpuTicks ?? 0) / TICKS

/** Signals a process that may have exited already. */
export function killIfRunning(pid: number, signal: NodeJS.Signals = 'SIGKILL'): void {
  try {
    if (pid > 1) process.kill(pid, signal)
  } catch {
    // It has exited already.
  }
}

export function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
  } catch {
    return []
  }
}

/**
 * Finds processes of this machine (in our mount namespace) by program and argument prefix. A launcher that will
 * exec the program also matches. Ancestors come before descendants, and the youngest first: an older one may still
 * be finishing its last connections.
 */
export function findByArgument(program: string, argument: string): ProcessIdentity[] {
  const ours = mountNamespace('self')
  const found = new Map<number, { identity: ProcessIdentity; parent: number }>()
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry)
    if (!Number.isInteger(pid)) continue
    const args = argumentsOf(pid)
    if (!args.some(arg => arg.endsWith(program)) || !args.some(arg => arg.startsWith(argument))) continue
    const stat = statOf(pid)
    // The namespace of a process with other privileges, such as HAProxy's worker, is unreadable.
    if (stat === null || ![ours, null].includes(mountNamespace(entry))) continue
    found.set(pid, { identity: { pid, startTime: stat.startTime }, parent: stat.parent })
  }
  const all = [...found.values()]
  const isRoot = ({ parent }: { parent: number }) => !found.has(parent)
  const youngestFirst = (one: (typeof all)[number], other: (typeof all)[number]) =>
    other.identity.startTime - one.identity.startTime
  return [...all.filter(isRoot).sort(youngestFirst), ...all.filter(process => !isRoot(process))].map(
    ({ identity }) => identity,
  )
}

type Stat = { state: string; parent: number; cpuTicks: number; startTime: number }

function statOf(pid: number | string): Stat | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name in parentheses may contain anything, so count the fields after it.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    if (fields[0] === 'Z' || fields[0] === 'X') return null
    return {
      state: fields[0] ?? '',
      parent: Number(fields[1]),
      cpuTicks: Number(fields[11]) + Number(fields[12]),
      startTime: Number(fields[19]),
    }
  } catch {
    return null
  }
}

function argumentsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}

function mountNamespace(pid: string): string | null {
  try {
    return readlinkSync(`/proc/${pid}/ns/mnt`)
  } catch {
    return null
  }
}
