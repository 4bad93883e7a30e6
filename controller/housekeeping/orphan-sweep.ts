import type { ComputeDriver } from '../compute/driver.js'
import type { Database } from '../database/connection.js'
import { execute, many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { vipDeviceId } from '../load-balancer/objects/load-balancers/vip-port-name.js'
import type { Logger } from '../log/log.js'
import { type NetworkDriver, PORT_OWNER } from '../network/driver.js'

export type OrphanSweep = {
  database: Database
  network: NetworkDriver
  compute: ComputeDriver
  /** The controller host to which the machines of this process are bound; null if they are bound to none. */
  hostId: string | null
  log: Logger
  /** Ports younger than this are skipped: their rows may not be committed yet. */
  portAgeSeconds: number
}

/** If at least this many machines, and most of all, are unknown, the database is probably the wrong one. */
const MIN_UNKNOWN_MACHINES = 3

type Orphan = { key: string; remove: () => Promise<void> }

/**
 * Deletes health records of amphorae that no longer exist. Then finds machines and ports whose amphora or load
 * balancer has no row, and removes those that the previous sweep also found. Rows are inserted before their
 * resources and deleted after them, so only interrupted work leaves orphans. If the database seems to be the
 * wrong one or restored from a backup, removes nothing: those machines may serve.
 * @param before orphans found by the last sweep
 * @returns orphans found but not removed
 */
export async function sweepOrphans(sweep: OrphanSweep, before: ReadonlySet<string>): Promise<ReadonlySet<string>> {
  // A heartbeat may be written at the same time as its amphora's row is deleted.
  await execute(
    sweep.database,
    sql`DELETE FROM amphora_health h WHERE NOT EXISTS (SELECT FROM amphora a WHERE a.id = h.amphora_id)`,
  )
  const machines = await orphanMachines(sweep)
  if (machines === 'too many') return new Set()
  const orphans = [...machines, ...(await orphanPorts(sweep))]
  const left = new Set<string>()
  for (const { key, remove } of orphans) {
    if (!before.has(key)) {
      left.add(key)
      continue
    }
    sweep.log.warn({ orphan: key }, 'removing an orphan')
    await remove().catch(error => {
      left.add(key)
      sweep.log.warn({ orphan: key, err: error }, 'removing an orphan failed; the next sweep retries')
    })
  }
  return left
}

/** A machine whose amphora has moved to another host is an orphan here. */
async function orphanMachines({ database, compute, hostId, log }: OrphanSweep): Promise<Orphan[] | 'too many'> {
  const machines = await compute.list()
  const ids = machines.map(machine => machine.amphoraId)
  const rows = await many(
    database,
    sql<{
      id: string
    }>`SELECT id FROM amphora WHERE id = ANY(${ids}::uuid[]) AND (host_id IS NULL OR host_id = ${hostId}::uuid)`,
  )
  const known = new Set(rows.map(({ id }) => id))
  const unknown = ids.filter(id => !known.has(id))
  if (unknown.length >= MIN_UNKNOWN_MACHINES && unknown.length > known.size) {
    log.error(
      { machines: ids.length, unknown: unknown.length },
      'most machines here are unknown to the database; is it the right one? removing nothing',
    )
    return 'too many'
  }
  return unknown.map(id => ({ key: `machine of amphora ${id}`, remove: () => compute.delete(id) }))
}

async function orphanPorts({ database, network, portAgeSeconds }: OrphanSweep): Promise<Orphan[]> {
  const owned = await Promise.all(
    [PORT_OWNER.amphora, PORT_OWNER.management, PORT_OWNER.vip].map(owner =>
      network.portsOwnedBy(owner, portAgeSeconds),
    ),
  )
  // A user's port is unbound, not deleted: its load balancer was never stored.
  const bound = await network.boundPorts(PORT_OWNER.vip, portAgeSeconds)
  const ports = [
    ...owned.flat().map(port => ({ port, remove: () => network.deletePort(port.id) })),
    ...bound.map(port => ({ port, remove: () => network.bindPort(port.id, null) })),
  ]
  const devices = ports.map(({ port }) => port.deviceId)
  const rows = await many(
    database,
    sql<{ device: string }>`
     SELECT id::text AS device FROM amphora WHERE id::text = ANY(${devices})
     UNION ALL SELECT device FROM (SELECT ${vipDeviceId('')} || id::text AS device FROM load_balancer) lb WHERE device = ANY(${devices})`,
  )
  const known = new Set(rows.map(row => row.device))
  return ports
    .filter(({ port }) => !known.has(port.deviceId))
    .map(({ port, remove }) => ({ key: `port ${port.id} of ${port.deviceId}`, remove }))
}
