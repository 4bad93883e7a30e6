import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { identityOf, type ProcessIdentity } from '../process/process-identity.js'

/**
 * The main process of the PostgreSQL whose cluster is in this directory; null when it does not run. PostgreSQL itself (`pg_ctl status`)
 * takes remains that nobody has collected for alive, and, after a kill or a reboot, another program that got the number.
 */
export function findPostmaster(clusterDirectory: string): ProcessIdentity | null {
  const data = join(clusterDirectory, 'data')
  const file = pidFile(clusterDirectory)
  if (!existsSync(file)) return null
  const pid = Number(readFileSync(file, 'utf8').split('\n')[0])
  const identity = Number.isInteger(pid) && pid > 0 ? identityOf(pid) : null
  return identity !== null && argumentsOf(pid).includes(data) ? identity : null
}

/** Removes the marks by which PostgreSQL would take one that is no more for alive. Only for when `findPostmaster` finds none. */
export function removeMarksOfDead(clusterDirectory: string): void {
  for (const file of [pidFile(clusterDirectory), join(clusterDirectory, 'socket/.s.PGSQL.5432.lock')]) {
    rmSync(file, { force: true })
  }
}

const pidFile = (clusterDirectory: string): string => join(clusterDirectory, 'data/postmaster.pid')

function argumentsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}
