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
import { usersOfPool } from '../objects/pools/users.js'
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
import { type Asked, requestedEvent } from './events.js'
import { WAKE_CHANNEL } from './wake-channel.js'

/** A load balancer whose row this transaction holds, with the generation that the change at hand gives it. */
export type ChangedLoadBalancer = {
  id: string
  project_id: string
  provider: string
  generation: number
  applied_generation: number
  /** Of its project. */
  limits: Limits
}

const inTurn = createQueues(outsideTurn)

/**
 * A transaction that is about to hold a load balancer's row. Those of one load balancer follow each other on the row, where each would
 * hold a connection that everybody else needs; so those of one process wait for each other before they take one.
 */
export function inTransactionOn<T>(
  database: Database,
  loadBalancerId: string,
  body: (trx: Transaction) => Promise<T>,
): Promise<T> {
  // Whoever is in a transaction already must not wait for those who wait for its connection.
  if (database.isTransaction === true) return inTransaction(database, body)
  return inTurn(loadBalancerId, () => inTransaction(database, body))
}

/**
 * Changes something in a load balancer's tree, in one transaction that holds the load balancer's row, so that changes of one
 * tree follow each other. It raises the generation, ends any back-off and wakes the workers when it commits. A change while another is under
 * way is accepted; only a load balancer under deletion takes none.
 * @param asked what the history tells of it
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function changeLoadBalancer<T>(
  { database, config }: Pick<Service, 'database' | 'config'>,
  asked: Asked,
  id: string,
  body: (trx: Transaction, loadBalancer: ChangedLoadBalancer) => Promise<T>,
): Promise<T> {
  return inTransactionOn(database, id, async trx => {
    const { stored, ...loadBalancer } = await raiseGeneration(trx, asked, id)
    return body(trx, { ...loadBalancer, limits: effectiveLimits(stored, config.quota) })
  })
}

type RaisedLoadBalancer = Omit<ChangedLoadBalancer, 'limits'> & { stored: StoredLimits | null }

async function raiseGeneration(trx: Transaction, asked: Asked, id: string): Promise<RaisedLoadBalancer> {
  const loadBalancer = await maybeOne(
    trx,
    sql<RaisedLoadBalancer>`
      WITH raised AS (
        UPDATE load_balancer SET ${raised('update')} WHERE id = ${id} AND change <> 'delete'
        RETURNING id, project_id, provider, generation, applied_generation),
      noted AS (${requestedEvent(asked, sql`raised`)})
      SELECT *, ${storedLimits(sql`raised.project_id`)} AS stored, pg_notify(${WAKE_CHANNEL}, id::text) FROM raised`,
  )
  return loadBalancer ?? refuse(trx, 'load_balancer', 'Load Balancer', id)
}

/** Marks a load balancer, and with it all that hangs below it, as under deletion. */
export async function deleteLoadBalancer(trx: Transaction, asked: Asked, id: string): Promise<void> {
  await execute(
    trx,
    sql`WITH raised AS (UPDATE load_balancer SET ${raised('delete')} WHERE id = ${id} RETURNING id, generation),
        noted AS (${requestedEvent(asked, sql`raised`)})
        SELECT pg_notify(${WAKE_CHANNEL}, id::text) FROM raised`,
  )
}

/** The kind of change of a row that is updated: what is still being created stays that. */
const createOrUpdate = (applied: number | Fragment, row = sql``): Fragment =>
  sql`CASE WHEN ${row}change = 'create' AND ${row}generation > ${applied} THEN 'create' ELSE 'update' END`

/** SET clause that makes the present row of load_balancer the newest generation. */
function raised(change: 'update' | 'delete'): Fragment {
  const kind = change === 'delete' ? sql`'delete'` : createOrUpdate(sql`applied_generation`)
  return sql`generation = generation + 1, change = ${kind}, attempts = 0, retry_at = NULL, updated_at = now()`
}

/**
 * SET clause that stamps a row below a load balancer as touched by its present change.
 * @param row the alias of the row with a dot, where a name alone would be ambiguous
 */
export const touched = (
  { generation, applied_generation }: Pick<ChangedLoadBalancer, 'generation' | 'applied_generation'>,
  row = sql``,
): Fragment => sql`generation = ${generation}, change = ${createOrUpdate(applied_generation, row)}, updated_at = now()`

/**
 * Writes new values of one object and stamps it.
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function updateObject(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  { table, label }: Resource,
  id: string,
  columns: Readonly<Record<string, unknown>>,
): Promise<void> {
  const given = Object.keys(columns).length === 0 ? sql`` : sql`${assignments(boundColumns(columns))}, `
  const changed = await execute(
    trx,
    sql`UPDATE ${identifier(table)} SET ${given}${touched(loadBalancer)}
         WHERE id = ${id} AND load_balancer_id = ${loadBalancer.id} AND change <> 'delete'`,
  )
  if (changed !== 1) await refuse(trx, table, label, id)
}

/** Marks objects as under deletion; their rows go when that is applied. */
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

/** What a change of a pool's members or monitor must know of the pool. */
export type TouchedPool<Beside = never> = {
  id: string
  protocol: string
  last_server_number: number
  monitored: boolean
  /** Enabled listeners that it serves. */
  listeners: number
  beside: Beside
}

/**
 * Stamps a pool and every listener that uses it, because something in the pool changes.
 * @param newMembers how many server numbers to take; the last of them is last_server_number
 * @param beside one more value for the caller
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function touchPool<Beside = null>(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  poolId: string,
  newMembers = 0,
  beside: Fragment = sql`NULL`,
): Promise<TouchedPool<Beside>> {
  const pool = await maybeOne(
    trx,
    sql<TouchedPool<Beside>>`
      WITH users AS (UPDATE listener SET ${touched(loadBalancer)}
                      WHERE id IN (${usersOfPool(sql`${poolId}::uuid`)}) AND change <> 'delete')
      UPDATE pool o SET ${touched(loadBalancer)}, last_server_number = last_server_number + ${newMembers}
       WHERE id = ${poolId} AND change <> 'delete'
      RETURNING id, protocol, last_server_number,
                EXISTS (SELECT FROM health_monitor h WHERE h.pool_id = o.id AND h.change <> 'delete') AS monitored,
                (SELECT count(*)::int FROM listener l
                  WHERE l.id IN (${usersOfPool(sql`o.id`)}) AND l.admin_state_up AND l.change <> 'delete') AS listeners,
                ${beside} AS beside`,
  )
  return pool ?? refuse(trx, 'pool', 'Pool', poolId)
}

/** Stamps the listeners that use a pool, and writes `columns` to them. */
export async function touchListenersOf(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  poolId: string,
  columns: Readonly<Record<string, null>> = {},
): Promise<void> {
  const given = Object.keys(columns).length === 0 ? sql`` : sql`${prepared(assignments(columns))}, `
  await execute(
    trx,
    sql`UPDATE listener SET ${given}${touched(loadBalancer)}
         WHERE id IN (${usersOfPool(sql`${poolId}::uuid`)}) AND change <> 'delete'`,
  )
}

export type TouchedListener = { id: string; protocol: string }

/**
 * Stamps a listener, because something in its policies changes.
 * @throws ApiError 404 when it is gone, 409 when it is being deleted
 */
export async function touchListener(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  listenerId: string,
): Promise<TouchedListener> {
  const listener = await maybeOne(
    trx,
    sql<TouchedListener>`
      UPDATE listener SET ${touched(loadBalancer)} WHERE id = ${listenerId} AND change <> 'delete' RETURNING id, protocol`,
  )
  return listener ?? refuse(trx, 'listener', 'Listener', listenerId)
}

/**
 * Stamps an L7 policy and its listener, because something in the policy's rules changes.
 * @returns how many rules it has
 * @throws ApiError 404 when it is gone, 409 when it or its listener is being deleted
 */
export async function touchPolicy(
  trx: Transaction,
  loadBalancer: ChangedLoadBalancer,
  policyId: string,
): Promise<{ rules: number }> {
  const policy = await maybeOne(
    trx,
    sql<{ listener_id: string; rules: number }>`
      UPDATE l7_policy o SET ${touched(loadBalancer)} WHERE id = ${policyId} AND change <> 'delete'
      RETURNING listener_id,
                (SELECT count(*)::int FROM l7_rule r WHERE r.l7_policy_id = o.id AND r.change <> 'delete') AS rules`,
  )
  if (policy === undefined) return refuse(trx, 'l7_policy', 'L7 Policy', policyId)
  await touchListener(trx, loadBalancer, policy.listener_id)
  return policy
}

/** Why an object that a change needs was not there for it. */
async function refuse(trx: Transaction, table: string, label: string, id: string): Promise<never> {
  const found = await maybeOne(trx, sql`SELECT id FROM ${identifier(table)} WHERE id = ${id}`)
  throw found === undefined ? missing(label, id) : immutable(label, id)
}

/** Rows of one statement. To write down thousands takes the event loop from all other requests for too long. */
const ROWS_AT_ONCE = 200

/**
 * Inserts rows with the stamp of the present change, within the project's quota.
 * @param rowOf the row of an item; all rows have the same columns
 * @param replaced how many rows of the same kind the request takes away, for which it need not be charged
 * @returns the first row that another one's unique index kept out, or undefined when all went in
 * @throws ApiError 403 when they are more than the quota allows, 503 when it is held too long
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
  for (let from = 0; from < items.length; from += ROWS_AT_ONCE) {
    const rows = items.slice(from, from + ROWS_AT_ONCE).map(rowOf)
    const refused = await insertSome(trx, above.generation, table, rows)
    if (refused !== undefined) return refused
  }
  return undefined
}

/** JSON of what each row has unlike the first: of members mostly their ids and addresses. */
function differences(rows: readonly Readonly<Record<string, unknown>>[]): string {
  const [first = {}] = rows
  return JSON.stringify(
    rows.map(row => Object.fromEntries(Object.entries(row).filter(([name, value]) => value !== first[name]))),
  )
}

async function insertSome<Row extends { id: string }>(
  trx: Transaction,
  generation: number,
  table: CountedTable,
  rows: readonly Row[],
): Promise<Row | undefined> {
  const stamped = rows.map(row => ({ ...row, generation, change: 'create' }))
  const names = identifiers(Object.keys(stamped[0] ?? {}))
  // One binding for all of them: a statement takes only so many, and each costs as much as a row does here.
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
