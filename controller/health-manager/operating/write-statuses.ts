import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import { type Fragment, identifier, json, sql } from '../../database/sql.js'
import type { OperatingStatus } from '../../load-balancer/schema/status.js'

export type StatusRow = {
  id: string
  status: OperatingStatus
  reason: string | null
  reported?: OperatingStatus
  impairment?: OperatingStatus | null
  /** Text of a time. */
  unheard?: string | null
}

/** Keys of the objects in bodies. */
const OBJECT_TYPES = { load_balancer: 'loadbalancer', listener: 'listener', pool: 'pool', member: 'member' } as const

/**
 * Changes of status per hour that the history of a load balancer accepts: of one object, and of all objects of its kind.
 * Flapping members then leave room for pools and listeners.
 */
export const MAX_PER_OBJECT = 12
export const MAX_PER_TYPE = 100

export type StatusColumns = {
  reasonColumn?: 'operating_reason' | 'impairment_reason'
  /** SQL of more assignments, from the row `v`. */
  more?: Fragment
  /** SQL of more conditions on the row `t`. */
  where?: Fragment
}

/**
 * Writes the statuses of one kind of object, and adds changes to the histories: one statement, none without rows. Locks
 * the rows first, so that of several health managers only one sees a change.
 */
export async function writeStatuses(
  database: Knex,
  table: keyof typeof OBJECT_TYPES,
  rows: readonly StatusRow[],
  { reasonColumn = 'operating_reason', more = sql``, where = sql`` }: StatusColumns = {},
): Promise<void> {
  if (rows.length === 0) return
  const type = OBJECT_TYPES[table]
  const owner = table === 'load_balancer' ? sql`t.id` : sql`t.load_balancer_id`
  await execute(
    database,
    sql`
     WITH v AS MATERIALIZED (
       SELECT * FROM jsonb_to_recordset(${json(rows)}::jsonb)
                  AS v(id uuid, status text, reason text, reported text, impairment text, unheard timestamptz)),
     before AS MATERIALIZED (
       SELECT t.id, t.operating_status AS status FROM ${identifier(table)} t
        WHERE t.id IN (SELECT id FROM v)${where} ORDER BY t.id FOR UPDATE),
     changed AS (
       UPDATE ${identifier(table)} t
          SET operating_status = v.status, ${identifier(reasonColumn)} = v.reason,
              operating_since = CASE WHEN before.status = v.status THEN t.operating_since ELSE now() END${more}
         FROM v JOIN before USING (id)
        WHERE t.id = v.id
        RETURNING t.id, ${owner} AS owner, before.status AS former, v.status, v.reason),
     recent AS (
       SELECT e.load_balancer_id AS owner, e.detail->>'object_id' AS id, count(*) AS count
         FROM load_balancer_event e
        WHERE e.load_balancer_id IN (SELECT owner FROM changed WHERE former <> status) AND e.created_at > now() - interval '1 hour'
          AND e.kind = 'status_changed' AND e.detail->>'object_type' = ${type}
        GROUP BY 1, 2),
     numbered AS (
       SELECT c.*, row_number() OVER (PARTITION BY c.owner ORDER BY c.id)
                   + (SELECT coalesce(sum(count), 0) FROM recent WHERE recent.owner = c.owner) AS place
         FROM changed c LEFT JOIN recent ON recent.owner = c.owner AND recent.id = c.id::text
        WHERE c.former <> c.status AND coalesce(recent.count, 0) < ${MAX_PER_OBJECT})
     INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
     SELECT lb.id, lb.generation, 'status_changed', jsonb_build_object('object_type', ${type}::text, 'object_id', n.id,
              'status_change', jsonb_build_object('from', n.former, 'to', n.status, 'reason', n.reason))
       FROM numbered n JOIN load_balancer lb ON lb.id = n.owner
      WHERE n.place <= ${MAX_PER_TYPE}`,
  )
}
