import type { Knex } from 'knex'
import type { MaterialKind } from '../../../x509/material/load.js'
import type { Target } from '../../../x509/material/reference.js'
import { execute, many } from '../../database/query.js'
import { identifier, identifiers, join, json, sql } from '../../database/sql.js'
import {
  BINDS,
  type Bound,
  type BoundLoadBalancer,
  type BoundMaterial,
  consumersOf,
  type Inspected,
  OWNERS,
} from './binding.js'

/**
 * A binding that no load balancer has confirmed for this long belongs to a request that failed, or whose process died.
 * Much longer than any request takes.
 */
export const UNCONFIRMED_SECONDS = 120

/**
 * Binds objects to a load balancer that is about to use them, and stores what was found of each. Locks them, so that
 * a concurrent deletion either sees the binding or has happened before. What was confirmed must be confirmed again: a
 * worker that is about to release it does not know of the new use. A binding whose right still holds keeps it: whoever
 * binds the object again may not take the load balancer's right with them when they lose theirs. What was found of a
 * version that is not the present one any more counts for nothing.
 * @param wanted those with material are bound; of the others it is kept that this version cannot be used
 * @returns the targets that are still there
 */
export async function bind(
  database: Knex,
  loadBalancer: BoundLoadBalancer,
  userId: string,
  wanted: readonly Inspected[],
): Promise<Target[]> {
  const held: Target[] = []
  for (const kind of ['secrets', 'containers'] as const) {
    const all = wanted.filter(({ target }) => target.kind === kind)
    const rows = all.filter(({ material }) => Object.keys(material).length > 0)
    if (kind === 'containers')
      await noteUnusable(
        database,
        loadBalancer.id,
        all.filter(one => !rows.includes(one)),
      )
    if (rows.length === 0) continue
    const { owner, columns, values, live, version } = OWNERS[kind]
    const [table, ownerId, names] = [consumersOf(owner), identifier(`${owner}_id`), identifiers(columns)]
    const found = rows.map(({ target, version: inspected, material }) => ({
      id: target.id,
      version: inspected,
      material,
    }))
    const stored = await many(
      database,
      sql<{ id: string }>`
       WITH wanted AS (
         SELECT * FROM jsonb_to_recordset(${json(found)}::jsonb) AS w (id uuid, version integer, material jsonb)),
       held AS MATERIALIZED (
         SELECT o.id, ${version} AS version FROM ${identifier(owner)} o
          WHERE o.id IN (SELECT id FROM wanted) AND ${live} ORDER BY o.id FOR SHARE)
       INSERT INTO ${table} AS c (id, ${ownerId}, project_id, ${names}, load_balancer_id, user_id, bound_at, material)
       SELECT gen_random_uuid(), held.id, ${loadBalancer.projectId}, ${join(values(loadBalancer))}, ${loadBalancer.id}::uuid,
              ${userId}, clock_timestamp(), CASE WHEN held.version = wanted.version THEN wanted.material ELSE '{}' END
         FROM held JOIN wanted ON wanted.id = held.id
       ON CONFLICT (${ownerId}, ${names}) DO UPDATE
          SET (project_id, user_id) = (
                SELECT CASE WHEN ${BINDS} THEN c.project_id ELSE excluded.project_id END,
                       CASE WHEN ${BINDS} THEN c.user_id ELSE excluded.user_id END
                  FROM ${identifier(owner)} o WHERE o.id = c.${ownerId}),
              load_balancer_id = excluded.load_balancer_id, bound_at = excluded.bound_at, confirmed = false,
              material = CASE WHEN excluded.material = '{}' THEN '{}' ELSE c.material - 'unusable' || excluded.material END
       RETURNING c.${ownerId} AS id`,
    )
    held.push(...stored.map(({ id }) => ({ kind, id })))
  }
  return held
}

/** Keeps that these versions cannot be used: nobody is told again until the next version. */
async function noteUnusable(database: Knex, loadBalancerId: string, inspected: readonly Inspected[]): Promise<void> {
  if (inspected.length === 0) return
  const found = inspected.map(({ target, version }) => ({ id: target.id, version }))
  await execute(
    database,
    sql`WITH found AS (SELECT * FROM jsonb_to_recordset(${json(found)}::jsonb) AS f (id uuid, version integer)),
        held AS MATERIALIZED (
          SELECT o.id FROM container o JOIN found f USING (id, version) ORDER BY o.id FOR SHARE OF o)
        UPDATE container_consumer c SET material = '{"unusable": true}' FROM held
         WHERE c.container_id = held.id AND c.load_balancer_id = ${loadBalancerId} AND c.material = '{}'`,
  )
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

/** The ids of all that a load balancer may read by its bindings: the objects, and the secrets of containers. */
export async function readableIds(database: Knex, bound: readonly Bound[]): Promise<ReadonlySet<string>> {
  const ids = bound.map(({ target }) => target.id)
  const parts = await many(
    database,
    sql<{ id: string }>`SELECT secret_id AS id FROM container_secret WHERE container_id = ANY(${ids}::uuid[])`,
  )
  return new Set([...ids, ...parts.map(({ id }) => id)])
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
