import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { identityOf, type ProcessIdentity } from '../process/process-identity.js'

/**
 * The main process of the PostgreSQL whose cluster is in this directory; null when it is not running. `pg_ctl status`
 * would take a zombie for alive and, after a kill or a reboot, another program that got the pid.
 */
export function findPostmaster(clusterDirectory: string): ProcessIdentity | null {
  const data = join(clusterDirectory, 'data')
  const file = pidFile(clusterDirectory)
  if (!existsSync(file)) return null
  const pid = Number(readFileSync(file, 'utf8').split('\n')[0])
  const identity = Number.isInteger(pid) && pid > 0 ? identityOf(pid) : null
  return identity !== null && argumentsOf(pid).includes(data) ? identity : null
}

/**
 * Removes the lock files that make PostgreSQL take a dead server for alive. Call it only if `findPostmaster`
 * finds none.
 */
export function removeStaleLocks(clusterDirectory: string): void {
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
