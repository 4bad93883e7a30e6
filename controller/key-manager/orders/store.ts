import type { Knex } from 'knex'
import { one } from '../../database/query.js'
import { json, sql } from '../../database/sql.js'
import { type Actor, auditInsert } from '../audit/record.js'
import type { Sealed } from '../crypto/keyring.js'
import { underActiveKey } from '../crypto/under-active-key.js'
import { newId } from '../ids.js'
import { quotaReached } from '../rights.js'
import type { Service } from '../service.js'
import { passphraseContext } from './order.js'
import type { Order } from './outcome.js'
import { ORDER_CHANNEL } from './wake-channel.js'

export type OrderToStore = Pick<Order, 'projectId' | 'creatorId' | 'type' | 'meta' | 'passphrase'> & {
  /** Stored in the meta. */
  expiration: Date | null
}

/**
 * Accepts an order: stores it with its audit record and wakes a worker, in one statement.
 * @returns its id
 * @throws ApiError 403 when the project's quota of orders is reached
 */
export async function storeOrder(
  { database, keyring, config }: Service,
  order: OrderToStore,
  actor: Actor,
): Promise<string> {
  const id = newId()
  const { projectId, passphrase } = order
  const outcome = await underActiveKey(keyring, projectId, async () => {
    const sealed =
      passphrase === null ? null : await keyring.seal(projectId, Buffer.from(passphrase), passphraseContext(id))
    return insertOrder(database, { id, order, sealed, actor, limit: config.quota.orders })
  })
  if (outcome === 'quota') throw quotaReached('orders')
  return id
}

type Insert = { id: string; order: OrderToStore; sealed: Sealed | null; actor: Actor; limit: number }

async function insertOrder(
  database: Knex,
  { id, order, sealed, actor, limit }: Insert,
): Promise<'stored' | 'quota' | 'key replaced'> {
  const audit = auditInsert(
    actor,
    { action: 'order.create', outcome: 'success', targetType: 'order', targetId: id, detail: { type: order.type } },
    sql`made`,
  )
  const key = sealed?.projectKeyId ?? null
  // Python clients fail on an expiration in the meta of a certificate order.
  const expiration =
    order.type === 'certificate'
      ? sql`'{}'::jsonb`
      : sql`jsonb_build_object('expiration', iso_time(${order.expiration}::timestamptz))`
  const allowed = await one(
    database,
    sql<{ fits: boolean; keyActive: boolean }>`
     WITH allowed AS MATERIALIZED (
       SELECT quota_allows(${order.projectId}::text, 'orders', ${limit}::integer) AS fits,
              ${key}::uuid IS NULL OR EXISTS (SELECT 1 FROM project_key WHERE id = ${key}::uuid AND active) AS key_active),
     made AS (
       INSERT INTO secret_order (id, project_id, creator_id, type, meta, sealed_passphrase, project_key_id, created_at, updated_at)
       SELECT ${id}::uuid, ${order.projectId}, ${order.creatorId}, ${order.type}, ${json(order.meta)}::jsonb || ${expiration},
              ${sealed?.ciphertext ?? null}::bytea, ${key}::uuid, now(), now()
         FROM allowed WHERE fits AND key_active RETURNING id, lane),
     logged AS (${audit})
     SELECT fits, key_active AS "keyActive", (SELECT pg_notify(${ORDER_CHANNEL}::text, lane) FROM made) FROM allowed`,
  )
  if (!allowed.fits) return 'quota'
  return allowed.keyActive ? 'stored' : 'key replaced'
}
