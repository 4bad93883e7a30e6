import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne } from '../../database/query.js'
import {
  assignments,
  boundColumns,
  type Fragment,
  identifier,
  identifiers,
  json,
  prepared,
  sql,
} from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { createQueues } from '../../process/in-turn.js'
import { outsideTurn } from '../../process/turn.js'
import { listenersUsingPool } from '../objects/pools/users.js'
import {
  type CountedTable,
  chargeQuota,
  effectiveLimits,
  type Limits,
  type StoredLimits,
  storedLimits,
} from '../objects/quotas/limits.js'
import { immutable, missing } from '../schema/faults.js'
import type { Resource } from '../schema/resource.js'
import type { Service } from '../schema/service.js'
import { type RequestDetail, requestedEvent } from './events.js'
import { WAKE_CHANNEL } from './wake-channel.js'

/** A load balancer whose row this transaction has locked, with the generation of the current change. */
export type ChangedLoadBalancer = {
  id: string
  project_id: string
  provider: string
  generation: number
  applied_generation: number
  /** Quota limits of its project. */
  limits: Limits
}

const inTurn = createQueues(outsideTurn)

/**
 * Runs a transaction that locks a load balancer's row. Transactions of one load balancer queue for that row,
 * and each would occupy a database connection while it waits. Those of one process therefore queue here, before
 * they take a connection.
 */
export function inTransactionOn<T>(
  database: Database,
  loadBalancerId: string,
  body: (trx: Transaction) => Promise<T>,
): Promise<T> {
  // A nested transaction must not wait for others, which may be waiting for its connection.
  if (database.isTransaction === true) return inTransaction(database, body)
  return inTurn(loadBalancerId, () => inTransaction(database, body))
}

/**
 * Changes a load balancer's tree in one transaction that locks the load balancer's row, which serializes
 * changes of one tree. Raises the generation, ends any back-off, and wakes the workers on commit. Changes are
 * accepted while another is pending, but not under deletion.
 * @param detail of the event that records the change
 * @throws ApiError 404 when the load balancer does not exist, 409 when it is being deleted
 */
export async function changeLoadBalancer<T>(
  { database, config }: Pick<Service, 'database' | 'config'>,
  detail: RequestDetail,
  id: string,
  body: (trx: Transaction, loadBalancer: ChangedLoadBalancer) => Promise<T>,
): Promise<T> {
  return inTransactionOn(database, id, async trx => {
    const { stored, ...loadBalancer } = await raiseGeneration(trx, detail, id)
    return body(trx, { ...loadBalancer, limits: effectiveLimits(stored, config.quota) })
  })
}

type RaisedLoadBalancer = Omit<ChangedLoadBalancer, 'limits'> & { stored: StoredLimits | null }

async function raiseGeneration(trx: Transaction, detail: RequestDetail, id: string): Promise<RaisedLoadBalancer> {
  const loadBalancer = await maybeOne(
    trx,
    sql<RaisedLoadBalancer>`
      WITH raised AS (
        UPDATE load_balancer SET ${nextGeneration('update')} WHERE id = ${id} AND change <> 'delete'
        RETURNING id, project_id, provider, generation, applied_generation),
      event AS (${requestedEvent(detail, sql`raised`)})
      SELECT *, ${storedLimits(sql`raised.project_id`)} AS stored, pg_notify(${WAKE_CHANNEL}, id::text) FROM raised`,
  )
  return loadBalancer ?? throwMissingOrImmutable(trx, 'load_balancer', 'Load Balancer', id)
}

/** Marks a load balancer, and with it everything below, as under deletion. */
export async function deleteLoadBalancer(trx: Transaction, detail: RequestDetail, id: string): Promise<void> {
  await execute(
    trx,
    sql`WITH raised AS (UPDATE load_balancer SET ${nextGeneration('delete')} WHERE id = ${id} RETURNING id, generation),
        event AS (${requestedEvent(detail, sql`raised`)})
        SELECT pg_notify(${WAKE_CHANNEL}, id::text) FROM raised`,
  )
}

/** SQL: `change` of an updated row. A row whose create is not applied yet keeps 'create'. */
const createOrUpdate = (applied: number | Fragment, row = sql``): Fragment =>
  sql`CASE WHEN ${row}change = 'create' AND ${row}generation > ${applied} THEN 'create' ELSE 'update' END`

/** SET clause that starts the next generation of a load_balancer row. */
function nextGeneration(change: 'update' | 'delete'): Fragment {
  const kind = change === 'delete' ? sql`'delete'` : createOrUpdate(sql`applied_generation`)
  return sql`generation = generation + 1, change = ${kind}, attempts = 0, retry_at = NULL, updated_at = now()`
}

/**
 * SET clause that marks a row below a load balancer as part of the current change.
 * @param row alias of the table with a dot, if column names alone are ambiguous
 */
export const stamp = (
  { generation, applied_generation }: Pick<ChangedLoadBalancer, 'generation' | 'applied_generation'>,
  row = sql``,
): Fragment => sql`generation = ${generation}, change = ${createOrUpdate(applied_generation, row)}, updated_at = now()`

/**
 * Updates one object and stamps it.
 * @throws ApiError 404 when it does not exist, 409 when it is being deleted
 */
export async function updateObject(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  { table, label }: Resource,
  id: string,
  columns: Readonly<Record<string, unknown>>,
): Promise<void> {
  const values = Object.keys(columns).length === 0 ? sql`` : sql`${assignments(boundColumns(columns))}, `
  const changed = await execute(
    trx,
    sql`UPDATE ${identifier(table)} SET ${values}${stamp(loadBalancer)}
         WHERE id = ${id} AND load_balancer_id = ${loadBalancer.id} AND change <> 'delete'`,
  )
  if (changed !== 1) await throwMissingOrImmutable(trx, table, label, id)
}

/** Marks objects as under deletion. Their rows are deleted when the change is applied. */
export async function markDeleted(
  trx: Transaction,
  { generation }: ChangedLoadBalancer,
  { table }: Resource,
  ids: readonly string[],
): Promise<void> {
  await execute(
    trx,
    sql`UPDATE ${identifier(table)} SET generation = ${generation}, change = 'delete', updated_at = now()
         WHERE id = ANY(${ids}::uuid[])`,
  )
}

/** What a change of a pool's members or health monitor needs to know about the pool. */
export type TouchedPool<Extra = never> = {
  id: string
  protocol: string
  last_server_number: number
  monitored: boolean
  /** Number of enabled listeners that use it. */
  listeners: number
  extra: Extra
}

/**
 * Stamps a pool and every listener that uses it, for a change within the pool.
 * @param newMembers number of server numbers to reserve; the last one is last_server_number
 * @param extra SQL of one more value to return
 * @throws ApiError 404 when the pool does not exist, 409 when it is being deleted
 */
export async function touchPool<Extra = null>(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  poolId: string,
  newMembers = 0,
  extra: Fragment = sql`NULL`,
): Promise<TouchedPool<Extra>> {
  const pool = await maybeOne(
    trx,
    sql<TouchedPool<Extra>>`
      WITH users AS (UPDATE listener SET ${stamp(loadBalancer)}
                      WHERE id IN (${listenersUsingPool(sql`${poolId}::uuid`)}) AND change <> 'delete')
      UPDATE pool o SET ${stamp(loadBalancer)}, last_server_number = last_server_number + ${newMembers}
       WHERE id = ${poolId} AND change <> 'delete'
      RETURNING id, protocol, last_server_number,
                EXISTS (SELECT FROM health_monitor h WHERE h.pool_id = o.id AND h.change <> 'delete') AS monitored,
                (SELECT count(*)::int FROM listener l
                  WHERE l.id IN (${listenersUsingPool(sql`o.id`)}) AND l.admin_state_up AND l.change <> 'delete') AS listeners,
                ${extra} AS extra`,
  )
  return pool ?? throwMissingOrImmutable(trx, 'pool', 'Pool', poolId)
}

/** Stamps the listeners that use a pool and writes `columns` to them. */
export async function touchListenersOf(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  poolId: string,
  columns: Readonly<Record<string, null>> = {},
): Promise<void> {
  const values = Object.keys(columns).length === 0 ? sql`` : sql`${prepared(assignments(columns))}, `
  await execute(
    trx,
    sql`UPDATE listener SET ${values}${stamp(loadBalancer)}
         WHERE id IN (${listenersUsingPool(sql`${poolId}::uuid`)}) AND change <> 'delete'`,
  )
}

export type TouchedListener = { id: string; protocol: string }

/**
 * Stamps a listener, for a change of its policies.
 * @throws ApiError 404 when it does not exist, 409 when it is being deleted
 */
export async function touchListener(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  listenerId: string,
): Promise<TouchedListener> {
  const listener = await maybeOne(
    trx,
    sql<TouchedListener>`
      UPDATE listener SET ${stamp(loadBalancer)} WHERE id = ${listenerId} AND change <> 'delete' RETURNING id, protocol`,
  )
  return listener ?? throwMissingOrImmutable(trx, 'listener', 'Listener', listenerId)
}

/**
 * Stamps an L7 policy and its listener, for a change of the policy's rules.
 * @returns the number of its rules
 * @throws ApiError 404 when it does not exist, 409 when it or its listener is being deleted
 */
export async function touchPolicy(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  policyId: string,
): Promise<{ rules: number }> {
  const policy = await maybeOne(
    trx,
    sql<{ listener_id: string; rules: number }>`
      UPDATE l7_policy o SET ${stamp(loadBalancer)} WHERE id = ${policyId} AND change <> 'delete'
      RETURNING listener_id,
                (SELECT count(*)::int FROM l7_rule r WHERE r.l7_policy_id = o.id AND r.change <> 'delete') AS rules`,
  )
  if (policy === undefined) return throwMissingOrImmutable(trx, 'l7_policy', 'L7 Policy', policyId)
  await touchListener(trx, loadBalancer, policy.listener_id)
  return policy
}

/** @throws ApiError 404 when the object does not exist, otherwise 409 because it is being deleted */
async function throwMissingOrImmutable(trx: Transaction, table: string, label: string, id: string): Promise<never> {
  const found = await maybeOne(trx, sql`SELECT id FROM ${identifier(table)} WHERE id = ${id}`)
  throw found === undefined ? missing(label, id) : immutable(label, id)
}

/**
 * Rows per statement. Serializing thousands at once would block the event loop, and so all other requests, for
 * too long.
 */
const ROWS_PER_STATEMENT = 200

/**
 * Inserts rows stamped with the current change, within the project's quota.
 * @param rowOf row of an item; all rows have the same columns
 * @param replaced number of rows that the same request removes, which offset the charge
 * @returns the first row that a unique index rejected, or undefined when all rows were inserted
 * @throws ApiError 403 when the quota is exceeded, 503 when the quota row stays locked too long
 */
export async function insertRows<Item, Row extends { id: string }>(
  trx: Transaction,
  above: Pick<ChangedLoadBalancer, 'project_id' | 'generation' | 'limits'>,
  table: CountedTable,
  items: readonly Item[],
  rowOf: (item: Item) => Row,
  replaced = 0,
): Promise<Row | undefined> {
  if (items.length > replaced) await chargeQuota(trx, above, table, items.length - replaced)
  for (let from = 0; from < items.length; from += ROWS_PER_STATEMENT) {
    const rows = items.slice(from, from + ROWS_PER_STATEMENT).map(rowOf)
    const rejected = await insertBatch(trx, above.generation, table, rows)
    if (rejected !== undefined) return rejected
  }
  return undefined
}

/** JSON of the columns in which each row differs from the first; for members, mostly ids and addresses. */
function differences(rows: readonly Readonly<Record<string, unknown>>[]): string {
  const [first = {}] = rows
  return JSON.stringify(
    rows.map(row => Object.fromEntries(Object.entries(row).filter(([name, value]) => value !== first[name]))),
  )
}

async function insertBatch<Row extends { id: string }>(
  trx: Transaction,
  generation: number,
  table: CountedTable,
  rows: readonly Row[],
): Promise<Row | undefined> {
  const stamped = rows.map(row => ({ ...row, generation, change: 'create' }))
  const names = identifiers(Object.keys(stamped[0] ?? {}))
  // One binding for all rows: PostgreSQL limits the number of bindings, and each would cost as much as a row
  // does here.
  const count = await execute(
    trx,
    sql`INSERT INTO ${identifier(table)} (${names}) SELECT ${names}
          FROM json_populate_recordset(
                 json_populate_record(NULL::${identifier(table)}, ${json(stamped[0])}), ${differences(stamped)})
            ON CONFLICT DO NOTHING`,
  )
  if (count === rows.length) return undefined
  const inserted = await many(
    trx,
    sql<{ id: string }>`SELECT id FROM ${identifier(table)} WHERE id = ANY(${rows.map(({ id }) => id)}::uuid[])`,
  )
  const ids = new Set(inserted.map(({ id }) => id))
  return rows.find(({ id }) => !ids.has(id))
}
