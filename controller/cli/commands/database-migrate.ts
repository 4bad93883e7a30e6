import type { Command } from '../command.js'
import { bootstrap } from '../first-start/bootstrap.js'
import { completeConfiguration } from '../first-start/complete-configuration.js'
import { prepareTables } from '../first-start/tables.js'
import { ensureInstanceId, ensureStateDirectory } from '../state-directory/instance.js'
import { print } from '../terminal.js'
import { openDatabase } from '../wiring/instance.js'
import { registerThisHost } from '../wiring/this-host.js'

export const command: Command = { run: migrateDatabase }

/**
 * Creates what processes need before they start: tables, first users and networks, keys, client files, and this host's
 * place among the controller hosts. Safe to repeat.
 */
export async function migrateDatabase(directory: string): Promise<void> {
  ensureStateDirectory(directory)
  const instanceId = ensureInstanceId(directory)
  const { config, save } = await completeConfiguration(directory, instanceId, process.env)
  save(print)
  await prepareTables({ directory, config })
  await bootstrap({ directory, config })
  const database = openDatabase({ directory, config }, 'load_balancer', 'db migrate')
  try {
    await registerThisHost({ directory, config }, database)
  } finally {
    await database.destroy()
  }
  print('All tables are up to date.')
}
