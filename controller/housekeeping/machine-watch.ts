import { setTimeout as wait } from 'node:timers/promises'
import type { ComputeDriver, Machine } from '../compute/driver.js'
import type { Database } from '../database/connection.js'
import { WAKE_CHANNEL } from '../load-balancer/wake-channel.js'
import type { Logger } from '../log/log.js'

export type MachineWatch = { database: Database; compute: Pick<ComputeDriver, 'list'>; log: Logger }
export type CardWatch = { database: Database; compute: Pick<ComputeDriver, 'brokenCards'>; log: Logger }

/** What the watch knows from look to look: machines as they were when it last looked, and those whose end is not on record yet. */
export type Watched = { machines: ReadonlyMap<string, Machine>; ended: ReadonlySet<string> }

export const NOTHING_WATCHED: Watched = { machines: new Map(), ended: new Set() }

/**
 * Finds machines that have ended since the last look, long before their heartbeats are missed, and has their load balancers
 * looked at; also of one that has started and ended between two looks. At the first look every stopped machine counts as just ended. One end leads to one look, so a machine that will not
 * start keeps to the back-off of its load balancer.
 * @param before what the last look returned @returns what to give to the next one; the ends stay in it while the database is away
 */
export async function watchMachines({ database, compute, log }: MachineWatch, before: Watched): Promise<Watched> {
  const machines = new Map((await compute.list()).map(machine => [machine.amphoraId, machine]))
  const isRunning = (amphoraId: string) => machines.get(amphoraId)?.state === 'running'
  const hasRun = ({ amphoraId, start }: Machine) => {
    const last = before.machines.get(amphoraId)
    return before === NOTHING_WATCHED || last?.state === 'running' || (start !== undefined && start !== last?.start)
  }
  const gone = [...before.machines.values()].filter(({ amphoraId }) => !machines.has(amphoraId))
  const known = [...machines.values(), ...gone].filter(hasRun).map(({ amphoraId }) => amphoraId)
  const ended = new Set([...known, ...before.ended].filter(amphoraId => !isRunning(amphoraId)))
  if (ended.size === 0) return { machines, ended }
  try {
    for (const { id, amphorae } of await askForALook(database, [...ended])) {
      log.warn({ loadBalancer: id, amphorae }, 'the machine of an amphora has ended: asking for a look')
    }
    return { machines, ended: new Set() }
  } catch (error) {
    log.warn({ err: error }, 'ended machines could not be recorded; it is tried again')
    return { machines, ended }
  }
}

/** A card may be on its way in or out; after this time it has arrived. */
const CARD_PAUSE_MS = 500

/**
 * Finds running machines that lack a network card, and has their load balancers looked at, once.
 * @param asked what the last look returned @returns what to give to the next one: the amphorae that lack a card and were asked about
 */
export async function watchCards(
  { database, compute, log }: CardWatch,
  asked: ReadonlySet<string>,
): Promise<ReadonlySet<string>> {
  const broken = await compute.brokenCards()
  const still = new Set(broken.filter(amphoraId => asked.has(amphoraId)))
  if (still.size === broken.length) return still
  await wait(CARD_PAUSE_MS)
  const again = new Set(await compute.brokenCards())
  const news = broken.filter(amphoraId => again.has(amphoraId) && !asked.has(amphoraId))
  for (const { id, amphorae } of await askForALook(database, news)) {
    log.warn({ loadBalancer: id, amphorae }, 'a network card of an amphora is gone or down: asking for a look')
  }
  return new Set([...still, ...news])
}

/** A retry time in the future gives way as well: the back-off is kept, but the fault that it was for is not this one. */
async function askForALook(
  database: Database,
  amphoraIds: readonly string[],
): Promise<{ id: string; amphorae: string[] }[]> {
  const { rows } = await database.raw(
    `WITH touched AS (
       SELECT load_balancer_id AS id, array_agg(id) AS amphorae FROM amphora
        WHERE id = ANY(?::uuid[]) AND status = 'ALLOCATED' GROUP BY load_balancer_id)
     UPDATE load_balancer lb SET recheck_at = now(), retry_at = least(lb.retry_at, now())
       FROM touched WHERE lb.id = touched.id
      RETURNING lb.id, touched.amphorae, pg_notify(?, lb.id::text)`,
    [[...amphoraIds], WAKE_CHANNEL],
  )
  return rows as { id: string; amphorae: string[] }[]
}
