import { randomBytes } from 'node:crypto'
import { readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { identifier, sql } from '../database/sql.js'
import { bootId, startTicksOf } from '../process/process-stat.js'

/**
 * A name for the claims of this process that tells whether it still lives: host, process id, when it started, the boot and the process
 * namespace in which that is so, and something random, since one process may have several.
 */
export function nameLeaseOwner(): string {
  const { pid } = process
  return [hostname(), pid, startTicksOf(pid), place(), randomBytes(4).toString('hex')].join(' ')
}

/**
 * Frees at once what processes hold that have died on this machine, rather than when their leases end. Whoever lives elsewhere, or cannot
 * be judged from here, is left alone; a process that is only paused lives.
 * @returns ids of the rows that were freed
 */
export async function releaseClaimsOfDead(database: Database, table: string): Promise<string[]> {
  const claimed = identifier(table)
  const owners = await many(
    database,
    sql<{ owner: string }>`SELECT DISTINCT lease_owner AS owner FROM ${claimed} WHERE lease_owner IS NOT NULL`,
  )
  const dead = owners.map(({ owner }) => owner).filter(isDead)
  if (dead.length === 0) return []
  const freed = await many(
    database,
    sql<{ id: string }>`
      UPDATE ${claimed} SET lease_owner = NULL, lease_until = NULL WHERE lease_owner = ANY(${dead}) RETURNING id`,
  )
  return freed.map(({ id }) => id)
}

function isDead(owner: string): boolean {
  const [, pid, startTicks, where] = owner.split(' ')
  return where !== undefined && where === place() && String(startTicksOf(Number(pid))) !== startTicks
}

/** The boot of the machine and the process namespace: within both, an id and a start time belong to one process only. */
function place(): string {
  return `${bootId()}/${readlinkSync('/proc/self/ns/pid')}`
}
