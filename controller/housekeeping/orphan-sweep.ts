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
  log: Logger
  /** Ports younger than this are passed over: their rows may be on their way. */
  portAgeSeconds: number
}

/** Most machines unknown, and at least so many: then it is rather the database that is not the right one. */
const FEW = 3

type Orphan = { key: string; remove: () => Promise<void> }

/**
 * Removes what was heard of amphorae that are gone. Then finds machines and ports whose amphora or load balancer has no row, and removes
 * those that the sweep before this one found as well. Rows are made before what belongs to them and removed after it, so that only interrupted work leaves orphans.
 * With a database that was restored from a backup, or exchanged, nothing is removed: those machines may well serve.
 * @param before what the last sweep found @returns what this one found and left
 */
export async function sweepOrphans(sweep: OrphanSweep, before: ReadonlySet<string>): Promise<ReadonlySet<string>> {
  // A heartbeat may be written in the instant in which the row of its amphora goes.
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
    sweep.log.warn({ orphan: key }, 'removing what nobody owns')
    await remove().catch(error => {
      left.add(key)
      sweep.log.warn({ orphan: key, err: error }, 'could not be removed; the next sweep tries again')
    })
  }
  return left
}

async function orphanMachines({ database, compute, log }: OrphanSweep): Promise<Orphan[] | 'too many'> {
  const machines = await compute.list()
  const ids = machines.map(machine => machine.amphoraId)
  const rows = await many(database, sql<{ id: string }>`SELECT id FROM amphora WHERE id = ANY(${ids}::uuid[])`)
  const known = new Set(rows.map(({ id }) => id))
  const unknown = ids.filter(id => !known.has(id))
  if (unknown.length >= FEW && unknown.length > known.size) {
    log.error(
      { machines: ids.length, unknown: unknown.length },
      'the database knows few of the machines here: is it the right one? Nothing is removed',
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
  // A user's port is given back, not deleted: its load balancer was never stored.
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
