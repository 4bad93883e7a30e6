import * as z from 'zod'
import { type ObjectTable, objectTableSchema } from '../../amphora-agent/protocol/desired.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import { type Assessment, assess, type Stored, type StoredObject } from './operating/assess.js'
import { worseOf } from './operating/impairment.js'
import { type Picture, readPicture } from './operating/picture.js'
import { type Reasons, reasonsOf } from './operating/reasons.js'
import { type StatusRow, writeStatuses } from './operating/write-statuses.js'
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
  const stored = await readStored(
    database,
    authoritative.map(entry => entry.context.load_balancer_id),
  )
  const assessments = authoritative.flatMap(entry => {
    const loadBalancer = stored.get(entry.context.load_balancer_id)
    const reported = readPicture(entry.picture, entry.table)
    if (loadBalancer === undefined || reported === null) return []
    const assessment = assess(loadBalancer, reported)
    return [{ loadBalancer, assessment, reasons: reasonsOf(loadBalancer, reported, assessment) }]
  })
  const changes = changedStatuses(assessments)
  const listeners = known.flatMap(listenerReadings)
  const pools = known.flatMap(poolReadings)
  if ([listeners, pools, ...Object.values(changes)].every(rows => rows.length === 0)) return skipped
  await inTransaction(database, async trx => {
    await writeStatuses(trx, 'load_balancer', changes.load_balancer, { more: sql`, reported_status = v.reported` })
    await writeStatuses(trx, 'listener', changes.listener)
    await writeStatuses(trx, 'pool', changes.pool)
    await writeStatuses(trx, 'member', changes.member)
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

async function readStored(database: Database, ids: readonly string[]): Promise<Map<string, Stored>> {
  if (ids.length === 0) return new Map()
  const rows = await many(
    database,
    sql<Stored>`
     SELECT lb.id, lb.operating_status AS "operatingStatus", lb.operating_reason AS reason, lb.reported_status AS "reportedStatus", lb.impairment, lb.admin_state_up AS "adminStateUp",
            lb.generation = lb.applied_generation AS settled,
            coalesce((SELECT jsonb_agg(jsonb_build_object('id', l.id, 'operatingStatus', l.operating_status, 'reason', l.operating_reason,
                        'adminStateUp', l.admin_state_up)) FROM listener l WHERE l.load_balancer_id = lb.id), '[]') AS listeners,
            coalesce((SELECT jsonb_agg(jsonb_build_object('id', p.id, 'operatingStatus', p.operating_status, 'reason', p.operating_reason,
                        'adminStateUp', p.admin_state_up, 'members',
                        coalesce((SELECT jsonb_agg(jsonb_build_object('id', m.id, 'operatingStatus', m.operating_status, 'reason', m.operating_reason,
                                    'adminStateUp', m.admin_state_up, 'address', m.address, 'protocolPort', m.protocol_port))
                                    FROM member m WHERE m.pool_id = p.id), '[]')))
                        FROM pool p WHERE p.load_balancer_id = lb.id), '[]') AS pools
       FROM load_balancer lb WHERE lb.id = ANY(${ids}::uuid[])`,
  )
  return new Map(rows.map(row => [row.id, row]))
}

type StatusChanges = Record<'load_balancer' | 'listener' | 'pool' | 'member', StatusRow[]>

type Assessed = { loadBalancer: Stored; assessment: Assessment; reasons: Reasons }

function changedStatuses(assessed: readonly Assessed[]): StatusChanges {
  const changes: StatusChanges = { load_balancer: [], listener: [], pool: [], member: [] }
  const compare = (rows: StatusRow[], before: StoredObject, by: Assessment['pools'], reasons: Reasons['pools']) => {
    const { id, operatingStatus } = before
    const [status, reason] = [by.get(id), reasons.get(id) ?? null]
    if (status !== undefined && (status !== operatingStatus || reason !== before.reason)) {
      rows.push({ id, status, reason })
    }
  }
  for (const { loadBalancer, assessment, reasons } of assessed) {
    const reported = assessment.loadBalancer
    const status = worseOf(reported, loadBalancer.impairment)
    const reason = reasons.loadBalancer
    const { operatingStatus, reportedStatus, reason: before } = loadBalancer
    if (status !== operatingStatus || reported !== reportedStatus || reason !== before) {
      changes.load_balancer.push({ id: loadBalancer.id, status, reason, reported })
    }
    for (const each of loadBalancer.listeners) {
      compare(changes.listener, each, assessment.listeners, reasons.listeners)
    }
    for (const pool of loadBalancer.pools) {
      compare(changes.pool, pool, assessment.pools, reasons.pools)
      for (const each of pool.members) compare(changes.member, each, assessment.members, reasons.members)
    }
  }
  return changes
}
