import type { Database } from '../../../../database/connection.js'
import { maybeOne } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import { isId } from '../../../../key-manager/ids.js'
import { OperatorError } from '../../../operator-error.js'
import { type Instance, openDatabase, openInstance } from '../../../wiring/instance.js'

/** Prints a line for the user. */
export type Write = (line: string) => void

/** Runs `work` with the key manager's database, then closes it. */
export async function withRows<Result>(
  directory: string,
  work: (database: Database, instance: Instance) => Promise<Result>,
): Promise<Result> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'ca')
  try {
    return await work(database, instance)
  } finally {
    await database.destroy()
  }
}

/** @throws OperatorError for an unknown CA */
export async function authority(database: Database, id: string): Promise<{ id: string; pluginName: string }> {
  const named = sql<{ id: string; pluginName: string }>`
    SELECT id, plugin_name AS "pluginName" FROM certificate_authority WHERE id = ${id}`
  const found = isId(id) ? await maybeOne(database, named) : undefined
  if (found === undefined) {
    throw new OperatorError(`There is no certificate authority ${id}. \`krater key-manager ca list\` lists all.`)
  }
  return found
}
