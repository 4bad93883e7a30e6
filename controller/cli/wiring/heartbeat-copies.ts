import { isDeepStrictEqual } from 'node:util'
import type { Database } from '../../database/connection.js'
import { otherAddresses } from '../../hosts/read-hosts.js'
import {
  copiesTable,
  copyHeartbeats,
  type HeartbeatCopies,
  stopCopies,
} from '../../network/local/host/heartbeat-copies.js'
import { runTool } from '../../network/local/ip-command.js'

/** How often copies that nobody changed are compared with the kernel. */
const LOOK_MS = 15_000

/**
 * A keeper of the copies of heartbeats that the kernel sends to the other controller hosts.
 * @param own what of the copies does not depend on the other hosts
 * @returns makes the kernel send them; to be called again and again
 */
export function createCopyKeeper(
  database: Database,
  hostId: string,
  own: Omit<HeartbeatCopies, 'to'>,
): () => Promise<void> {
  let applied: { to: readonly string[]; lookedAt: number } | null = null
  return async () => {
    const to = await otherAddresses(database, hostId)
    const isSame = applied !== null && isDeepStrictEqual(applied.to, to)
    if (isSame && (to.length === 0 || (applied && performance.now() - applied.lookedAt < LOOK_MS))) return
    if (!isSame || !(await isThere(own.interfaceName))) {
      applied = null
      await (to.length === 0 ? stopCopies(own.interfaceName) : copyHeartbeats({ ...own, to }))
    }
    applied = { to, lookedAt: performance.now() }
  }
}

async function isThere(interfaceName: string): Promise<boolean> {
  const tables = await runTool(['nft', 'list', 'tables', 'ip'], '')
  return tables.split('\n').includes(`table ${copiesTable(interfaceName)}`)
}
