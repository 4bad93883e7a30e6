import { setTimeout as wait } from 'node:timers/promises'
import type { ComputeDriver, Machine } from '../compute/driver.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'

export type MachineWatch = { database: Database; compute: Pick<ComputeDriver, 'list'>; log: Logger }
export type InterfaceWatch = { database: Database; compute: Pick<ComputeDriver, 'brokenInterfaces'>; log: Logger }

/** What the watch keeps between observations: the machines as last observed, and ends that are not recorded yet. */
export type Watched = { machines: ReadonlyMap<string, Machine>; ended: ReadonlyMap<string, End> }

/** Whether the machine was observed while it ran, or started and ended between two observations. */
type End = 'observed' | 'unobserved'

export const NOTHING_WATCHED: Watched = { machines: new Map(), ended: new Map() }

/**
 * Finds machines that have ended since the last observation, also those that started and ended in between, and asks for a recheck of their
 * load balancers, long before heartbeats are missed. At first every stopped machine counts as just ended. One end leads to one recheck, so a
 * machine that will not start keeps to the back-off of its load balancer.
 * @param before what the last call returned
 * @returns what to give to the next call; ends stay in it while the database is away
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
      log.warn({ loadBalancer: id, amphorae }, 'the machine of an amphora has ended: asking for a recheck')
    }
    return { machines, ended: new Map() }
  } catch (error) {
    log.warn({ err: error }, 'ended machines could not be recorded; it is tried again')
    return { machines, ended }
  }
}

/** How a machine that does not run has ended since the last observation; null when it has not run since. */
function endOf({ amphoraId, start }: Machine, before: Watched): End | null {
  const last = before.machines.get(amphoraId)
  if (before === NOTHING_WATCHED || last?.state === 'running') return 'observed'
  return start === undefined || start === last?.start ? null : 'unobserved'
}

/** An interface may be on its way in or out; after this time it has arrived. */
const INTERFACE_PAUSE_MS = 500

/**
 * Finds running machines that lack a network interface, and asks once for a recheck of their load balancers.
 * @param asked what the last call returned
 * @returns what to give to the next call: the amphorae that lack an interface and for which a recheck was asked
 */
export async function watchInterfaces(
  { database, compute, log }: InterfaceWatch,
  asked: ReadonlySet<string>,
): Promise<ReadonlySet<string>> {
  const broken = await compute.brokenInterfaces()
  const still = new Set(broken.filter(amphoraId => asked.has(amphoraId)))
  if (still.size === broken.length) return still
  await wait(INTERFACE_PAUSE_MS)
  const again = new Set(await compute.brokenInterfaces())
  const news = broken.filter(amphoraId => again.has(amphoraId) && !asked.has(amphoraId))
  for (const { id, amphorae } of await requestRecheck(database, news)) {
    log.warn({ loadBalancer: id, amphorae }, 'a network interface of an amphora is gone or down: asking for a recheck')
  }
  return new Set([...still, ...news])
}

/**
 * An observed end also overrides a retry time in the future: the back-off stays, but it was for another fault. A machine that was never
 * observed running may have ended during the very attempt that the retry time follows.
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
