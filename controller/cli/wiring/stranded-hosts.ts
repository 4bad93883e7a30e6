import { enrolledHosts } from '../../compute/enrolled/hosts.js'
import { namedDrivers } from '../../compute/placement.js'
import { type HostRow, hostState, readHosts } from '../../hosts/read-hosts.js'
import { readHostRecord } from '../state-directory/host.js'
import { isInitialised, openDatabase, openInstance } from './instance.js'

/**
 * The enrolled hosts that nobody could retire any more without this controller host: those of an installation that has no
 * other. @returns their names; null if the database does not tell, and the settings name such hosts
 */
export async function strandedHosts(directory: string): Promise<string[] | null> {
  if (!isInitialised(directory)) return []
  let mayBe = true
  try {
    const instance = openInstance(directory)
    mayBe = namedDrivers(instance.config.compute).some(({ name }) => name === 'enrolled')
    const database = openDatabase(instance, 'load_balancer', 'down')
    try {
      const self = readHostRecord(directory)?.id
      const others = (await readHosts(database)).filter(host => host.id !== self && canRetire(host))
      return others.length > 0 ? [] : (await enrolledHosts(database)).map(({ name }) => name)
    } finally {
      await database.destroy()
    }
  } catch {
    // What is removed may be damaged, and its database may be away.
    return mayBe ? null : []
  }
}

/** It has started once, and is not known to be gone. */
const canRetire = (host: HostRow): boolean => host.removed_at === null && ['alive', 'slow'].includes(hostState(host))
