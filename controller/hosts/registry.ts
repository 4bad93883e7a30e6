import type { Database } from '../database/connection.js'
import { execute, maybeOne } from '../database/query.js'
import { sql } from '../database/sql.js'
import { isUniqueViolation } from '../database/transaction.js'

/** A controller host, as it describes itself. */
export type ControllerHost = {
  id: string
  name: string
  /** Where the other hosts reach it; null if nobody set one. */
  address: string | null
  /** Distinguishes its namespaces and devices on its machine. */
  instance: string
  version: string
}

/** One process of a host. */
export type ControllerProcess = {
  name: string
  pid: number
  version: string
  /** What the names of the owners of its claims begin with. */
  owner: string
}

/** Signs of life come this often. */
export const SIGN_SECONDS = 2

/** Another host has the name. */
export class HostNameTaken extends Error {}
/** The database does not know the host: it was removed, or this is another database. */
export class HostUnknown extends Error {}
/** The host runs from another state directory. */
export class HostElsewhere extends Error {}

/**
 * Writes what the host says of itself.
 * @param isNew whether it may be the first time
 * @throws HostNameTaken, HostUnknown, HostElsewhere
 */
export async function registerHost(database: Database, host: ControllerHost, isNew: boolean): Promise<void> {
  const { id, name, address, instance, version } = host
  try {
    if (isNew) {
      await execute(
        database,
        sql`INSERT INTO controller_host (id, name, address, instance, version) VALUES (${id}, ${name}, ${address}, ${instance}, ${version})
            ON CONFLICT (id) DO NOTHING`,
      )
    }
    const written = await execute(
      database,
      sql`UPDATE controller_host SET name = ${name}, address = ${address}, instance = ${instance}, version = ${version}
           WHERE id = ${id} AND removed_at IS NULL AND coalesce(instance, ${instance}) = ${instance}`,
    )
    if (written > 0) return
    const elsewhere = sql`SELECT FROM controller_host WHERE id = ${id} AND removed_at IS NULL`
    if ((await maybeOne(database, elsewhere)) !== undefined)
      throw new HostElsewhere(`The controller host ${name} (${id}) has started from another state directory before.`)
    throw new HostUnknown(`The database does not know the controller host ${name} (${id}).`)
  } catch (error) {
    if (isUniqueViolation(error)) throw new HostNameTaken(`Another controller host has the name ${name}.`)
    throw error
  }
}

/**
 * Reserves a name for a host that has not started yet. Whoever lost its bundle may repeat it.
 * @returns its id
 * @throws HostNameTaken if a host of this name has started
 */
export async function reserveHost(
  database: Database,
  { name, address }: { name: string; address: string },
): Promise<string> {
  const row = await maybeOne(
    database,
    sql<{ id: string }>`
      INSERT INTO controller_host AS host (id, name, address) VALUES (gen_random_uuid(), ${name}, ${address})
      ON CONFLICT (name) WHERE removed_at IS NULL DO UPDATE SET address = excluded.address WHERE host.last_seen_at IS NULL
      RETURNING id`,
  )
  if (row === undefined) throw new HostNameTaken(`Another controller host has the name ${name}.`)
  return row.id
}

/**
 * A host that is gone will not come back. Its name is free at once.
 * @returns false if it is not gone: it has just come back
 */
export async function markRemoved(database: Database, hostId: string): Promise<boolean> {
  const written = await execute(
    database,
    sql`UPDATE controller_host SET removed_at = coalesce(removed_at, now()) WHERE id = ${hostId} AND gone_at IS NOT NULL`,
  )
  return written > 0
}

/** A host that was only cut off, and is back within this time, finds that it was removed. */
const REMEMBERED_DAYS = 90

/** Forgets hosts that were removed long ago and to which nothing is bound. */
export async function forgetRemovedHosts(database: Database): Promise<void> {
  await execute(
    database,
    sql`DELETE FROM controller_host host
         WHERE removed_at < now() - ${REMEMBERED_DAYS} * interval '1 day' AND NOT EXISTS (SELECT FROM amphora WHERE host_id = host.id)
           AND NOT EXISTS (SELECT FROM load_balancer WHERE host_id = host.id)`,
  )
}

/**
 * Records that a process is alive, and so is its host.
 * @throws HostUnknown
 */
export async function recordSignOfLife(
  database: Database,
  hostId: string,
  { name, pid, version, owner }: ControllerProcess,
): Promise<void> {
  const written = await execute(
    database,
    sql`
       WITH host AS (
         UPDATE controller_host SET last_seen_at = now()
          WHERE id = ${hostId} AND removed_at IS NULL AND (last_seen_at IS NULL OR last_seen_at < now() - interval '1 second'))
       INSERT INTO controller_process (host_id, name, pid, version, owner)
       SELECT id, ${name}::text, ${pid}::int, ${version}::text, ${owner}::text FROM controller_host
        WHERE id = ${hostId} AND removed_at IS NULL
       ON CONFLICT (host_id, name, pid) DO UPDATE
          SET last_seen_at = now(), version = excluded.version, owner = excluded.owner,
              started_at = CASE WHEN controller_process.owner = excluded.owner THEN controller_process.started_at ELSE now() END`,
  )
  if (written === 0) throw new HostUnknown(`The controller host ${hostId} was removed.`)
}

/** Forgets a process that ends. */
export async function forgetProcess(
  database: Database,
  hostId: string,
  { name, pid }: Pick<ControllerProcess, 'name' | 'pid'>,
): Promise<void> {
  await execute(
    database,
    sql`DELETE FROM controller_process WHERE host_id = ${hostId} AND name = ${name} AND pid = ${pid}`,
  )
}

/** Forgets processes of the host with this name that have been silent for a while: this one replaces them. */
export async function forgetPredecessors(database: Database, hostId: string, name: string): Promise<void> {
  await execute(
    database,
    sql`DELETE FROM controller_process
         WHERE host_id = ${hostId} AND name = ${name} AND last_seen_at < now() - ${SIGN_SECONDS * 5} * interval '1 second'`,
  )
}
