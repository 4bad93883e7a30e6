import type { Database } from '../../../database/connection.js'
import { requireRoot } from '../../host/checks.js'
import { type Instance, openDatabase, openInstance } from '../../wiring/instance.js'

/** Runs `work` with the database in which the controller hosts are, then closes it. */
export async function withHosts<T>(
  directory: string,
  work: (instance: Instance, database: Database) => Promise<T>,
): Promise<T> {
  requireRoot()
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'load_balancer', 'controller')
  try {
    return await work(instance, database)
  } finally {
    await database.destroy()
  }
}
