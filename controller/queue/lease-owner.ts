import { randomBytes } from 'node:crypto'
import { readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { identifier, sql } from '../database/sql.js'
import { bootId, startTicksOf } from '../process/process-stat.js'

/**
 * Names an owner of claims in this process so that others can tell whether the process still runs. A random suffix
 * tells several owners in one process apart.
 */
export const nameLeaseOwner = (): string => `${leaseOwnerPrefix()} ${randomBytes(4).toString('hex')}`

/** What the names of all owners in this process begin with: host, process id, start time, boot and process namespace. */
export function leaseOwnerPrefix(): string {
  const { pid } = process
  return [hostname(), pid, startTicksOf(pid), processNamespace()].join(' ')
}

/**
 * Releases claims of dead processes on this machine without waiting for their leases to expire. Skips owners on
 * other machines or in other process namespaces, which cannot be checked from here. A paused process counts as
 * running.
 * @returns ids of the released rows
 */
export async function releaseDeadClaims(database: Database, table: string): Promise<string[]> {
  const claimed = identifier(table)
  const owners = await many(
    database,
    sql<{ owner: string }>`SELECT DISTINCT lease_owner AS owner FROM ${claimed} WHERE lease_owner IS NOT NULL`,
  )
  const dead = owners.map(({ owner }) => owner).filter(isDead)
  if (dead.length === 0) return []
  const released = await many(
    database,
    sql<{ id: string }>`
      UPDATE ${claimed} SET lease_owner = NULL, lease_until = NULL WHERE lease_owner = ANY(${dead}) RETURNING id`,
  )
  return released.map(({ id }) => id)
}

function isDead(owner: string): boolean {
  const [, pid, startTicks, namespace] = owner.split(' ')
  return namespace !== undefined && namespace === processNamespace() && String(startTicksOf(Number(pid))) !== startTicks
}

/** Boot and process namespace. Within both, a process id with a start time is unique. */
function processNamespace(): string {
  return `${bootId()}/${readlinkSync('/proc/self/ns/pid')}`
}
