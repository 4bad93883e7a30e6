import { Option } from 'commander'
import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { rotateProjectKeys } from '../../../key-manager/rotation/project-keys.js'
import type { Command } from '../../command.js'
import { OperatorError, UsageError } from '../../operator-error.js'
import { print } from '../../terminal.js'
import { openDatabase, openInstance } from '../../wiring/instance.js'
import { openKeyring } from '../../wiring/key-manager/keyring.js'
import { progressLines } from './progress-lines.js'
import { explainRotationError } from './rotate-master-key.js'

export const command: Command = {
  options: [
    new Option('--project <id>', 'replace the key of this project'),
    new Option('--all', 'replace the keys of all projects and of the service itself'),
  ],
  run: rotateProjectKeysNow,
}

export type RotateProjectKeysOptions = { project?: string; all?: boolean }

/**
 * Gives one project or all projects a new key, re-encrypts their data with it, and deletes the former keys. After an
 * interruption, the next run continues.
 * @returns the exit status: 1 when some values cannot be decrypted
 */
export async function rotateProjectKeysNow(
  directory: string,
  { project, all = false }: RotateProjectKeysOptions,
): Promise<number> {
  if ((project === undefined) !== all) throw new UsageError('Give either --project <id> or --all.')
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'rotation')
  try {
    const keyring = await openKeyring(instance, database)
    try {
      const { report, seconds } = progressLines('values')
      await requireKeys(database, project)
      const onResume = (startedAt: string) =>
        print(`Finishing the interrupted rotation that began at ${startedAt}. This run does not replace newer keys.`)
      const result = await rotateProjectKeys(database, keyring.backends, project ?? null, { report, onResume })
      const taken = seconds()
      print(
        `Replaced ${result.projects} ${result.projects === 1 ? 'key' : 'keys'} and re-encrypted ${result.done} values in ${taken.toFixed(1)} s (${Math.round(result.done / taken)} per second).`,
      )
      if (result.unreadable === 0) return 0
      print(`${result.unreadable} values cannot be decrypted. They and their keys were not changed.`)
      return 1
    } finally {
      await Promise.all([...keyring.backends.values()].map(backend => backend.stop()))
    }
  } catch (error) {
    throw explainRotationError(error)
  } finally {
    await database.destroy()
  }
}

/** A mistyped project id must not look like a success. */
async function requireKeys(database: Database, project: string | undefined): Promise<void> {
  if (project === undefined) return
  const key = await maybeOne(database, sql`SELECT id FROM project_key WHERE project_id = ${project} LIMIT 1`)
  if (key === undefined) throw new OperatorError(`The key manager has no key for a project ${project}.`)
}
