import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { bootId, startTicksOf } from './process-stat.js'

/** A process. Its start time and the machine's boot distinguish it from a later one with the same pid. */
export type ProcessIdentity = { pid: number; startTicks: number; bootId: string }

/** @returns null for a missing process or a zombie */
export function identityOf(pid: number): ProcessIdentity | null {
  const startTicks = startTicksOf(pid)
  return startTicks === null ? null : { pid, startTicks, bootId: bootId() }
}

export function isAlive(identity: ProcessIdentity): boolean {
  const now = identityOf(identity.pid)
  return now !== null && now.startTicks === identity.startTicks && now.bootId === identity.bootId
}

/**
 * Sends `signal` to processes, and kills those that are still alive after `graceMs`.
 * @returns the killed ones
 */
export async function endProcesses(
  identities: readonly ProcessIdentity[],
  { signal = 'SIGTERM', graceMs }: { signal?: NodeJS.Signals; graceMs: number },
): Promise<ProcessIdentity[]> {
  for (const identity of identities) send(identity, signal)
  if (await allGone(identities, graceMs)) return []
  const stubborn = identities.filter(isAlive)
  for (const identity of stubborn) send(identity, 'SIGKILL')
  await allGone(stubborn, 5_000)
  return stubborn
}

function send(identity: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!isAlive(identity)) return
  try {
    process.kill(identity.pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

async function allGone(identities: readonly ProcessIdentity[], milliseconds: number): Promise<boolean> {
  const until = performance.now() + milliseconds
  while (identities.some(isAlive)) {
    if (performance.now() > until) return false
    await delay(20)
  }
  return true
}

/** Every process of the machine whose command line `matches` accepts. @param matches gets the arguments as a list */
export function findProcesses(matches: (argv: readonly string[], pid: number) => boolean): ProcessIdentity[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number)
    .filter(pid => pid !== process.pid && matches((readOrNull(`/proc/${pid}/cmdline`) ?? '').split('\0'), pid))
    .flatMap(pid => identityOf(pid) ?? [])
}

/** Null for a file that is gone, as those of a process that ends. */
export function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
