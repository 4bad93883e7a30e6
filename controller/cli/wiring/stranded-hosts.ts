import { enrolledHosts } from '../../compute/enrolled/hosts.js'
import { readHosts } from '../../hosts/read-hosts.js'
import { readHostRecord } from '../state-directory/host.js'
import { isInitialised, openDatabase, openInstance } from './instance.js'

/**
 * The enrolled hosts that nobody could retire any more without this controller host: those of an installation that has no
 * other. @returns their names, as far as the database tells
 */
export async function strandedHosts(directory: string): Promise<string[]> {
  if (!isInitialised(directory)) return []
  try {
    const database = openDatabase(openInstance(directory), 'load_balancer', 'down')
    try {
      const self = readHostRecord(directory)?.id
      const others = (await readHosts(database)).filter(host => host.id !== self && host.removed_at === null)
      return others.length > 0 ? [] : (await enrolledHosts(database)).map(({ name }) => name)
    } finally {
      await database.destroy()
    }
  } catch {
    // What is removed may be damaged, and its database may be away.
    return []
  }
}
