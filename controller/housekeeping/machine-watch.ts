import { setTimeout as wait } from 'node:timers/promises'
import type { ComputeDriver, Machine } from '../compute/driver.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'

export type MachineWatch = { database: Database; compute: Pick<ComputeDriver, 'list'>; log: Logger }
export type InterfaceWatch = { database: Database; compute: Pick<ComputeDriver, 'brokenInterfaces'>; log: Logger }

/** What the watch knows from look to look: machines as they were when it last looked, and those whose end is not on record yet. */
export type Watched = { machines: ReadonlyMap<string, Machine>; ended: ReadonlyMap<string, End> }

/** Whether the machine was seen while it ran, or has started and ended between two looks. */
type End = 'seen' | 'unseen'

export const NOTHING_WATCHED: Watched = { machines: new Map(), ended: new Map() }

/**
 * Finds machines that have ended since the last look, long before their heartbeats are missed, and has their load balancers
 * looked at; also of one that has started and ended between two looks. At the first look every stopped machine counts as just ended. One end leads to one look, so a machine that will not
 * start keeps to the back-off of its load balancer.
 * @param before what the last look returned @returns what to give to the next one; the ends stay in it while the database is away
 */
export async function watchMachines({ database, compute, log }: MachineWatch, before: Watched): Promise<Watched> {
  const machines = new Map((await compute.list()).map(machine => [machine.amphoraId, machine]))
  const ended = new Map(before.ended)
  for (const machine of [...before.machines.values(), ...machines.values()]) {
    const end = endOf(machine, before)
    if (machines.get(machine.amphoraId)?.state === 'running') ended.delete(machine.amphoraId)
    else if (end !== null && ended.get(machine.amphoraId) !== 'seen') ended.set(machine.amphoraId, end)
  }
  if (ended.size === 0) return { machines, ended }
  try {
    const seen = [...ended].filter(([, end]) => end === 'seen').map(([amphoraId]) => amphoraId)
    for (const { id, amphorae } of await askForALook(database, [...ended.keys()], seen)) {
      log.warn({ loadBalancer: id, amphorae }, 'the machine of an amphora has ended: asking for a look')
    }
    return { machines, ended: new Map() }
  } catch (error) {
    log.warn({ err: error }, 'ended machines could not be recorded; it is tried again')
    return { machines, ended }
  }
}

/** How a machine that does not run has ended since the last look; null when it has not run since. */
function endOf({ amphoraId, start }: Machine, before: Watched): End | null {
  const last = before.machines.get(amphoraId)
  if (before === NOTHING_WATCHED || last?.state === 'running') return 'seen'
  return start === undefined || start === last?.start ? null : 'unseen'
}

/** An interface may be on its way in or out; after this time it has arrived. */
const INTERFACE_PAUSE_MS = 500

/**
 * Finds running machines that lack a network interface, and has their load balancers looked at, once.
 * @param asked what the last look returned @returns what to give to the next one: the amphorae that lack an interface and were asked about
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
  for (const { id, amphorae } of await askForALook(database, news)) {
    log.warn({ loadBalancer: id, amphorae }, 'a network interface of an amphora is gone or down: asking for a look')
  }
  return new Set([...still, ...news])
}

/**
 * A retry time in the future gives way as well to what was seen to happen: the back-off is kept, but the fault that it was for is not this one.
 * A machine that was not seen while it ran may have ended during the attempt that the retry time follows.
 */
async function askForALook(
  database: Database,
  amphoraIds: readonly string[],
  seen: readonly string[] = amphoraIds,
): Promise<{ id: string; amphorae: string[] }[]> {
  return many(
    database,
    sql<{ id: string; amphorae: string[] }>`
     WITH touched AS (
       SELECT load_balancer_id AS id, array_agg(id) AS amphorae, bool_or(id = ANY(${seen}::uuid[])) AS seen FROM amphora
        WHERE id = ANY(${amphoraIds}::uuid[]) AND status = 'ALLOCATED' GROUP BY load_balancer_id)
     UPDATE load_balancer lb
        SET recheck_at = now(), retry_at = CASE WHEN touched.seen THEN least(lb.retry_at, now()) ELSE lb.retry_at END
       FROM touched WHERE lb.id = touched.id
      RETURNING lb.id, touched.amphorae, pg_notify(${WAKE_CHANNEL}, lb.id::text)`,
  )
}
