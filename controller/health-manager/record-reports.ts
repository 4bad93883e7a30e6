import * as z from 'zod'
import { type ObjectTable, objectTableSchema } from '../../amphora-agent/protocol/desired.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import { type Picture, readPicture } from './operating/picture.js'
import { statusChanges, writeStatusChanges } from './record-reported.js'
import {
  type ListenerReading,
  type PoolReading,
  recordListenerStatistics,
  recordPoolStatistics,
} from './record-statistics.js'

export type AmphoraPicture = {
  amphoraId: string
  picture: Picture
  vrrpMaster: boolean
  counted: Counted
}

/** Indexes of objects whose counters arrived since the last write. */
export type Counted = { listeners: ReadonlySet<number>; pools: ReadonlySet<number> }

const contextSchema = z.object({
  amphora_id: z.string(),
  load_balancer_id: z.string(),
  applied_sha256: z.string().nullable(),
  applied_objects: objectTableSchema.nullable(),
  status: z.string(),
})

/**
 * Turns reports into operating statuses and statistics: two reads and at most six writes for any number of
 * amphorae, and no write for what did not change. Skips a report whose configuration is not the recorded one,
 * because its numbering is unknown. watch.ts handles the mismatch itself.
 * @returns ids of the skipped amphorae: a report may arrive before its apply is recorded
 */
export async function recordReports(database: Database, pictures: readonly AmphoraPicture[]): Promise<string[]> {
  if (pictures.length === 0) return []
  const contexts = await readContexts(
    database,
    pictures.map(picture => picture.amphoraId),
  )
  const known = pictures.flatMap(entry => {
    const context = contexts.get(entry.amphoraId)
    const table = context?.applied_objects
    if (context === undefined || !table || context.applied_sha256?.slice(0, 16) !== entry.picture.configHash) return []
    return [{ ...entry, context, table }]
  })
  const skipped = [...contexts.keys()].filter(id => !known.some(({ amphoraId }) => amphoraId === id))
  // Both amphorae of a pair report, and so do an amphora and its replacement. Only the view of the one that holds
  // the VIP counts.
  const authoritative = known.filter(entry => entry.vrrpMaster && entry.context.status !== 'PENDING_DELETE')
  const changes = await statusChanges(
    database,
    authoritative.flatMap(({ context, picture, table }) => {
      const reported = readPicture(picture, table)
      return reported === null ? [] : [{ loadBalancerId: context.load_balancer_id, reported }]
    }),
  )
  const listeners = known.flatMap(listenerReadings)
  const pools = known.flatMap(poolReadings)
  if ([listeners, pools, ...Object.values(changes)].every(rows => rows.length === 0)) return skipped
  await inTransaction(database, async trx => {
    await writeStatusChanges(trx, changes)
    await recordListenerStatistics(trx, listeners)
    await recordPoolStatistics(trx, pools)
  })
  return skipped
}

type Known = AmphoraPicture & { table: ObjectTable }

function listenerReadings({ amphoraId, picture, counted, table }: Known): ListenerReading[] {
  const { epoch, sentMs } = picture
  return [...counted.listeners].flatMap(index => {
    const listenerId = table.listeners[index]
    const counters = picture.listeners.get(index)?.counters
    if (listenerId === undefined || counters === undefined) return []
    return [{ listenerId, amphoraId, epoch, sentMs, ...counters }]
  })
}

function poolReadings({ amphoraId, picture, counted, table }: Known): PoolReading[] {
  const { epoch, sentMs } = picture
  return [...counted.pools].flatMap(index => {
    const object = table.pools[index]
    const counters = picture.pools.get(index)?.counters
    if (object === undefined || counters === undefined) return []
    const { poolId, listenerId } = object
    return [{ poolId, listenerId, amphoraId, epoch, sentMs, ...counters }]
  })
}

async function readContexts(database: Database, ids: readonly string[]) {
  const rows = await many(
    database,
    sql`SELECT a.id AS amphora_id, a.load_balancer_id, a.status, a.applied_sha256, a.applied_objects
          FROM amphora a WHERE a.id = ANY(${ids}::uuid[]) AND a.load_balancer_id IS NOT NULL`,
  )
  return new Map(rows.map(row => contextSchema.parse(row)).map(context => [context.amphora_id, context]))
}
