import { completeConfiguration } from '../state-directory/first-start.js'
import { ensureInstanceId, ensureStateDirectory } from '../state-directory/instance.js'
import { print } from '../terminal.js'
import { prepareTables } from '../wiring/tables.js'
import { bootstrap } from './bootstrap.js'

/**
 * What must stand before processes on one or several machines start on a database: tables, first users and networks, keys, and the files for
 * clients. Safe to repeat.
 */
export async function migrateDatabase(directory: string): Promise<void> {
  ensureStateDirectory(directory)
  const instanceId = ensureInstanceId(directory)
  const config = await completeConfiguration(directory, instanceId, process.env)
  await prepareTables({ directory, config })
  await bootstrap({ directory, config })
  print('All tables are up to date.')
}
