import type { Knex } from 'knex'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import { type Assessment, assess, type Stored, type StoredObject } from './operating/assess.js'
import { worseOf } from './operating/impairment.js'
import type { Reported } from './operating/picture.js'
import { type Reasons, reasonsOf } from './operating/reasons.js'
import { type StatusRow, writeStatuses } from './operating/write-statuses.js'

/** What is reported of the objects of a load balancer. */
export type ReportedLoadBalancer = { loadBalancerId: string; reported: Reported }

/** Operating statuses that differ from the stored ones, by table. */
export type StatusChanges = Record<'load_balancer' | 'listener' | 'pool' | 'member', StatusRow[]>

/** Writes operating statuses: one read, and no write for what did not change. */
export async function recordReported(database: Database, entries: readonly ReportedLoadBalancer[]): Promise<void> {
  const changes = await statusChanges(database, entries)
  if (Object.values(changes).every(rows => rows.length === 0)) return
  await inTransaction(database, trx => writeStatusChanges(trx, changes))
}

/** Assesses reports, and compares the result with what is stored. */
export async function statusChanges(
  database: Database,
  entries: readonly ReportedLoadBalancer[],
): Promise<StatusChanges> {
  const stored = await readStored(
    database,
    entries.map(({ loadBalancerId }) => loadBalancerId),
  )
  const assessed = entries.flatMap(({ loadBalancerId, reported }) => {
    const loadBalancer = stored.get(loadBalancerId)
    if (loadBalancer === undefined) return []
    const assessment = assess(loadBalancer, reported)
    return [{ loadBalancer, assessment, reasons: reasonsOf(loadBalancer, reported, assessment) }]
  })
  return changedStatuses(assessed)
}

export async function writeStatusChanges(trx: Knex, changes: StatusChanges): Promise<void> {
  await writeStatuses(trx, 'load_balancer', changes.load_balancer, { more: sql`, reported_status = v.reported` })
  await writeStatuses(trx, 'listener', changes.listener)
  await writeStatuses(trx, 'pool', changes.pool)
  await writeStatuses(trx, 'member', changes.member)
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
