import { lstatSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { identityOf } from './process-identity.js'

/**
 * Removes from a directory what killed processes have left there.
 * @param prefix of the names; the pid of the process that each belongs to follows it
 * @param kind plain files are all that is removed from a directory in which others may write: they could change a
 *   directory into a way elsewhere while it is emptied
 */
export function removeLeftovers(directory: string, prefix: string, kind: 'files' | 'all'): void {
  for (const name of readdirSync(directory)) {
    const [, pid] = (name.startsWith(prefix) && /^(\d+)(?:-|$)/.exec(name.slice(prefix.length))) || []
    if (pid === undefined || identityOf(Number(pid)) !== null) continue
    const path = join(directory, name)
    if (kind === 'all') rmSync(path, { recursive: true, force: true })
    else if (lstatSync(path, { throwIfNoEntry: false })?.isFile()) rmSync(path, { force: true })
  }
}
