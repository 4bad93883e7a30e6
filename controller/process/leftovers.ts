import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { identityOf } from './process-identity.js'

/**
 * Removes from a directory what killed processes have left there.
 * @param prefix of the names; the pid of the process that each belongs to follows it
 */
export function removeLeftovers(directory: string, prefix: string): void {
  for (const name of readdirSync(directory)) {
    const [, pid] = (name.startsWith(prefix) && /^(\d+)(?:-|$)/.exec(name.slice(prefix.length))) || []
    if (pid !== undefined && identityOf(Number(pid)) === null)
      rmSync(join(directory, name), { recursive: true, force: true })
  }
}
