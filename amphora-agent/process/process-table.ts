import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** A process, told apart from a later one with the same pid by its start time (in clock ticks since boot). */
export type ProcessIdentity = { pid: number; startTime: number }

/** @returns null when there is no such process, or when it has ended and only waits for its parent */
export function identityOf(pid: number): ProcessIdentity | null {
  const stat = statOf(pid)
  return stat && { pid, startTime: stat.startTime }
}

export function isAlive({ pid, startTime }: ProcessIdentity): boolean {
  return statOf(pid)?.startTime === startTime
}

/** Whether somebody has stopped it (SIGSTOP): it is there and does nothing. */
export function isStopped(pid: number): boolean {
  return ['T', 't'].includes(statOf(pid)?.state ?? '')
}

/**
 * What tells one that hangs from one that is slow: the processor time of all its threads in nanoseconds, and whether any of them runs or waits
 * for a processor.
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
    // It ended meanwhile.
  }
  return activity
}

/** The anonymous resident memory of a process, in KiB; 0 when it is gone. */
export function memoryOf(pid: number): number {
  try {
    return Number(/^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0)
  } catch {
    return 0
  }
}

/** Tells one that may have ended already. */
export function killIfThere(pid: number, signal: NodeJS.Signals = 'SIGKILL'): void {
  try {
    if (pid > 1) process.kill(pid, signal)
  } catch {
    // It is gone already.
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
 * Processes of this machine (our mount namespace) that were started as this program, or as one that becomes it, with an argument that begins so: ancestors before their descendants, the
 * youngest first, for an older one may still end its last connections.
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
    // Of one that has other rights than ours it cannot be read, as of HAProxy's worker.
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

function statOf(pid: number | string): { state: string; parent: number; startTime: number } | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name in brackets may hold anything, so count the fields from its end.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    if (fields[0] === 'Z' || fields[0] === 'X') return null
    return {
      state: fields[0] ?? '',
      parent: Number(fields[1]),
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
