import type { Knex } from 'knex'
import type { MaterialKind } from '../../../x509/material/load.js'
import type { Target } from '../../../x509/material/reference.js'
import { execute, many } from '../../database/query.js'
import { identifier, identifiers, join, json, sql } from '../../database/sql.js'
import { BINDS, type Bound, type BoundLoadBalancer, type BoundMaterial, consumersOf, OWNERS } from './binding.js'

/**
 * A binding that no load balancer has confirmed for this long belongs to a request that failed, or whose process died.
 * Much longer than any request takes.
 */
export const UNCONFIRMED_SECONDS = 120

/**
 * Binds objects to a load balancer that is about to use them, and stores what was found of each. Locks them, so that
 * a concurrent deletion either sees the binding or has happened before. What was confirmed must be confirmed again: a
 * worker that is about to release it does not know of the new use. A binding whose right still holds keeps it: whoever
 * binds the object again may not take the load balancer's right with them when they lose theirs.
 * @returns the targets that are still there
 */
export async function bind(
  database: Knex,
  loadBalancer: BoundLoadBalancer,
  userId: string,
  wanted: readonly Bound[],
): Promise<Target[]> {
  const held: Target[] = []
  for (const kind of ['secrets', 'containers'] as const) {
    const rows = wanted.filter(({ target }) => target.kind === kind)
    if (rows.length === 0) continue
    const { owner, columns, values, live } = OWNERS[kind]
    const [table, ownerId, names] = [consumersOf(owner), identifier(`${owner}_id`), identifiers(columns)]
    const stored = await many(
      database,
      sql<{ id: string }>`
       WITH wanted AS (
         SELECT * FROM jsonb_to_recordset(${json(rows.map(({ target, material }) => ({ id: target.id, material })))}::jsonb)
                    AS w (id uuid, material jsonb)),
       held AS MATERIALIZED (
         SELECT o.id FROM ${identifier(owner)} o WHERE o.id IN (SELECT id FROM wanted) AND ${live} ORDER BY o.id FOR KEY SHARE)
       INSERT INTO ${table} AS c (id, ${ownerId}, project_id, ${names}, load_balancer_id, user_id, bound_at, material)
       SELECT gen_random_uuid(), held.id, ${loadBalancer.projectId}, ${join(values(loadBalancer))}, ${loadBalancer.id}::uuid,
              ${userId}, clock_timestamp(), wanted.material
         FROM held JOIN wanted ON wanted.id = held.id
       ON CONFLICT (${ownerId}, ${names}) DO UPDATE
          SET (project_id, user_id) = (
                SELECT CASE WHEN ${BINDS} THEN c.project_id ELSE excluded.project_id END,
                       CASE WHEN ${BINDS} THEN c.user_id ELSE excluded.user_id END
                  FROM ${identifier(owner)} o WHERE o.id = c.${ownerId}),
              load_balancer_id = excluded.load_balancer_id, bound_at = excluded.bound_at, confirmed = false,
              material = c.material || excluded.material
       RETURNING c.${ownerId} AS id`,
    )
    held.push(...stored.map(({ id }) => ({ kind, id })))
  }
  return held
}

/**
 * Confirms what a load balancer uses, and releases the rest, except what a request may be about to use.
 * @returns the bindings that are left of those wanted, with what is known of each
 */
export async function confirm(database: Knex, loadBalancerId: string, wanted: readonly Target[]): Promise<Bound[]> {
  const left: Bound[] = []
  for (const kind of ['secrets', 'containers'] as const) {
    const { owner, live } = OWNERS[kind]
    const [table, ownerId] = [consumersOf(owner), identifier(`${owner}_id`)]
    const ids = wanted.filter(target => target.kind === kind).map(({ id }) => id)
    await execute(
      database,
      sql`DELETE FROM ${table} c WHERE c.load_balancer_id = ${loadBalancerId} AND c.${ownerId} <> ALL(${ids}::uuid[])
             AND (c.confirmed OR c.bound_at < now() - ${UNCONFIRMED_SECONDS} * interval '1 second')`,
    )
    if (ids.length === 0) continue
    const rows = await many(
      database,
      sql<{ id: string; material: Partial<Record<MaterialKind, BoundMaterial>> }>`
       UPDATE ${table} c SET confirmed = true FROM ${identifier(owner)} o
        WHERE c.load_balancer_id = ${loadBalancerId} AND c.${ownerId} = ANY(${ids}::uuid[]) AND o.id = c.${ownerId}
          AND ${live} AND ${BINDS}
       RETURNING o.id, c.material`,
    )
    left.push(...rows.map(({ id, material }) => ({ target: { kind, id }, material })))
  }
  return left
}

/** Releases all that a load balancer used, and its amphorae's right to read. */
export async function release(database: Knex, loadBalancerId: string): Promise<void> {
  await execute(
    database,
    sql`WITH secrets AS (DELETE FROM secret_consumer WHERE load_balancer_id = ${loadBalancerId}),
             containers AS (DELETE FROM container_consumer WHERE load_balancer_id = ${loadBalancerId})
        DELETE FROM amphora_reader WHERE load_balancer_id = ${loadBalancerId}`,
  )
}

/** Lets exactly these amphorae read what a load balancer uses. */
export async function setReaders(database: Knex, loadBalancerId: string, amphoraIds: readonly string[]): Promise<void> {
  await execute(
    database,
    sql`WITH gone AS (DELETE FROM amphora_reader
                       WHERE load_balancer_id = ${loadBalancerId} AND amphora_id <> ALL(${amphoraIds}::uuid[]))
        INSERT INTO amphora_reader (amphora_id, load_balancer_id)
        SELECT id, ${loadBalancerId}::uuid FROM unnest(${amphoraIds}::uuid[]) AS a (id)
        ON CONFLICT (amphora_id) DO UPDATE SET load_balancer_id = excluded.load_balancer_id
         WHERE amphora_reader.load_balancer_id <> excluded.load_balancer_id`,
  )
}

/**
 * Load balancers that must be told of again: a binding waits for its confirmation for too long, or what it leads to has
 * changed. At most `limit`.
 */
export async function dueBindings(database: Knex, limit: number): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
      SELECT DISTINCT id FROM (
        SELECT load_balancer_id AS id, confirmed, bound_at, material FROM secret_consumer
        UNION ALL SELECT load_balancer_id, confirmed, bound_at, material FROM container_consumer) all_bindings
       WHERE id IS NOT NULL
         AND (material = '{}' OR NOT confirmed AND bound_at < now() - ${UNCONFIRMED_SECONDS} * interval '1 second')
       LIMIT ${limit}`,
  )
  return rows.map(({ id }) => id)
}
