import type { Command } from '../command.js'
import { bootstrap } from '../first-start/bootstrap.js'
import { completeConfiguration } from '../first-start/complete-configuration.js'
import { prepareTables } from '../first-start/tables.js'
import { ensureInstanceId, ensureStateDirectory } from '../state-directory/instance.js'
import { print } from '../terminal.js'

export const command: Command = { run: migrateDatabase }

/**
 * Creates what processes on any number of machines need before they start: tables, first users and networks, keys, and
 * client files. Safe to repeat.
 */
export async function migrateDatabase(directory: string): Promise<void> {
  ensureStateDirectory(directory)
  const instanceId = ensureInstanceId(directory)
  const { config, save } = await completeConfiguration(directory, instanceId, process.env)
  save(print)
  await prepareTables({ directory, config })
  await bootstrap({ directory, config })
  print('All tables are up to date.')
}
