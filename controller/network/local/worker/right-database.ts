import type { Knex } from 'knex'
import type { Fabric } from '../fabric.js'
import { readGuards } from './read-ports.js'

/** If at least this many ports, and most of those that are plugged in, are unknown, the database is probably another one. */
const MIN_UNKNOWN_PORTS = 3

/**
 * Checks that the database knows the ports that are plugged in on this host. A worker that trusted one that was restored
 * from an old backup, or an empty one, would cut off machines that serve.
 * @throws Error if it knows few of them
 */
export async function requireRightDatabase(database: Knex, fabric: Fabric): Promise<void> {
  const { interfaces } = await fabric.inventory()
  if (interfaces.length < MIN_UNKNOWN_PORTS) return
  const known = (await readGuards(database, interfaces)).length
  const unknown = interfaces.length - known
  if (unknown < MIN_UNKNOWN_PORTS || unknown <= known) return
  throw new Error(
    `the database does not know ${unknown} of the ${interfaces.length} ports that are plugged in here; is it the right one? changing nothing`,
  )
}
