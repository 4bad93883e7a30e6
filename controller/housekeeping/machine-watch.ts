import { setTimeout as wait } from 'node:timers/promises'
import type { ComputeDriver, Machine } from '../compute/driver.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'

export type MachineWatch = { database: Database; compute: Pick<ComputeDriver, 'list'>; log: Logger }
export type InterfaceWatch = { database: Database; compute: Pick<ComputeDriver, 'brokenInterfaces'>; log: Logger }

/** State between observations: the machines as last observed, and ends not yet recorded. */
export type Watched = { machines: ReadonlyMap<string, Machine>; ended: ReadonlyMap<string, End> }

/** `observed`: the machine was seen running before. `unobserved`: it started and ended between two observations. */
type End = 'observed' | 'unobserved'

export const NOTHING_WATCHED: Watched = { machines: new Map(), ended: new Map() }

/**
 * Finds machines that have ended since the last observation, including those that started and ended in between,
 * and requests a recheck of their load balancers, long before heartbeats are missed. In the first call, every
 * stopped machine counts as just ended. Each end causes one recheck, so a machine that fails to start keeps to
 * its load balancer's back-off.
 * @param before the result of the last call
 * @returns the argument for the next call; keeps ends while the database is unavailable
 */
export async function watchMachines({ database, compute, log }: MachineWatch, before: Watched): Promise<Watched> {
  const machines = new Map((await compute.list()).map(machine => [machine.amphoraId, machine]))
  const ended = new Map(before.ended)
  for (const machine of [...before.machines.values(), ...machines.values()]) {
    const end = endOf(machine, before)
    if (machines.get(machine.amphoraId)?.state === 'running') ended.delete(machine.amphoraId)
    else if (end !== null && ended.get(machine.amphoraId) !== 'observed') ended.set(machine.amphoraId, end)
  }
  if (ended.size === 0) return { machines, ended }
  try {
    const observed = [...ended].filter(([, end]) => end === 'observed').map(([amphoraId]) => amphoraId)
    for (const { id, amphorae } of await requestRecheck(database, [...ended.keys()], observed)) {
      log.warn({ loadBalancer: id, amphorae }, 'machines of amphorae have ended; requesting a recheck')
    }
    return { machines, ended: new Map() }
  } catch (error) {
    log.warn({ err: error }, 'recording ended machines failed; retrying')
    return { machines, ended }
  }
}

/** How a stopped machine has ended since the last observation; null if it was already stopped. */
function endOf({ amphoraId, start }: Machine, before: Watched): End | null {
  const last = before.machines.get(amphoraId)
  if (before === NOTHING_WATCHED || last?.state === 'running') return 'observed'
  return start === undefined || start === last?.start ? null : 'unobserved'
}

/** Time for an interface that is being plugged or unplugged to settle. */
const INTERFACE_PAUSE_MS = 500

/**
 * Finds running machines that lack a network interface, and requests one recheck of their load balancers.
 * @param reported the result of the last call
 * @returns the argument for the next call: amphorae that lack an interface and whose recheck was requested
 */
export async function watchInterfaces(
  { database, compute, log }: InterfaceWatch,
  reported: ReadonlySet<string>,
): Promise<ReadonlySet<string>> {
  const broken = await compute.brokenInterfaces()
  const still = new Set(broken.filter(amphoraId => reported.has(amphoraId)))
  if (still.size === broken.length) return still
  await wait(INTERFACE_PAUSE_MS)
  const again = new Set(await compute.brokenInterfaces())
  const newlyBroken = broken.filter(amphoraId => again.has(amphoraId) && !reported.has(amphoraId))
  for (const { id, amphorae } of await requestRecheck(database, newlyBroken)) {
    log.warn({ loadBalancer: id, amphorae }, 'network interfaces of amphorae are missing or down; requesting a recheck')
  }
  return new Set([...still, ...newlyBroken])
}

/**
 * An observed end also overrides a future retry time, which was due to another fault; the back-off itself stays. An
 * unobserved end does not: the machine may have ended during the very attempt that set the retry time.
 */
async function requestRecheck(
  database: Database,
  amphoraIds: readonly string[],
  observed: readonly string[] = amphoraIds,
): Promise<{ id: string; amphorae: string[] }[]> {
  return many(
    database,
    sql<{ id: string; amphorae: string[] }>`
     WITH touched AS (
       SELECT load_balancer_id AS id, array_agg(id) AS amphorae, bool_or(id = ANY(${observed}::uuid[])) AS observed FROM amphora
        WHERE id = ANY(${amphoraIds}::uuid[]) AND status = 'ALLOCATED' GROUP BY load_balancer_id)
     UPDATE load_balancer lb
        SET recheck_at = now(), retry_at = CASE WHEN touched.observed THEN least(lb.retry_at, now()) ELSE lb.retry_at END
       FROM touched WHERE lb.id = touched.id
      RETURNING lb.id, touched.amphorae, pg_notify(${WAKE_CHANNEL}, lb.id::text)`,
  )
}
