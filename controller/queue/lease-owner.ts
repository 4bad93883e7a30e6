import { randomBytes } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import type { Database } from '../database/connection.js'

/**
 * A name for the claims of this process that tells whether it still lives: host, process id, when it started, the boot and the process
 * namespace in which that is so, and something random, since one process may have several.
 */
export function nameLeaseOwner(): string {
  const { pid } = process
  return [hostname(), pid, startTicksOf(pid), place(), randomBytes(4).toString('hex')].join(' ')
}

/**
 * Frees at once what processes hold that have died on this machine, rather than when their leases end. Whoever lives elsewhere, or cannot
 * be judged from here, is left alone; a process that is only paused lives.
 * @returns ids of the rows that were freed
 */
export async function releaseClaimsOfDead(database: Database, table: string): Promise<string[]> {
  const owners = await database(table).whereNotNull('lease_owner').distinct().pluck<string[]>('lease_owner')
  const dead = owners.filter(isDead)
  if (dead.length === 0) return []
  const freed = await database(table)
    .whereIn('lease_owner', dead)
    .update({ lease_owner: null, lease_until: null })
    .returning<{ id: string }[]>('id')
  return freed.map(({ id }) => id)
}

function isDead(owner: string): boolean {
  const [, pid, startTicks, where] = owner.split(' ')
  return where !== undefined && where === place() && startTicksOf(Number(pid)) !== startTicks
}

/** The boot of the machine and the process namespace: within both, an id and a start time belong to one process only. */
function place(): string {
  return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()}/${readlinkSync('/proc/self/ns/pid')}`
}

/** Clock ticks from the boot to the start of a process; null when there is none, or only remains that nobody has collected. */
function startTicksOf(pid: number): string | null {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return null
    throw error
  }
  // The second field is the program's name in brackets, which may hold anything.
  const [state, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return state === 'Z' || state === 'X' ? null : (fields[18] ?? null)
}
