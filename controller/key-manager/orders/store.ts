import type { Knex } from 'knex'
import { query } from '../../database/query.js'
import { type Actor, auditInsert } from '../audit/record.js'
import type { Sealed } from '../crypto/keyring.js'
import { underActiveKey } from '../crypto/under-active-key.js'
import { quotaReached } from '../faults.js'
import { newId } from '../ids.js'
import type { Service } from '../routes.js'
import { passphraseContext } from './order.js'
import type { Order } from './outcome.js'
import { ORDER_CHANNEL } from './wake-channel.js'

export type OrderToStore = Pick<Order, 'projectId' | 'creatorId' | 'type' | 'meta' | 'passphrase'> & {
  /** Kept in the meta. */
  expiration: Date | null
}

/**
 * Accepts an order: row, audit record and the call for a worker in one statement.
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
    'made',
  )
  const key = sealed?.projectKeyId ?? null
  // Python clients fail on an expiration in the meta of an order of a certificate.
  const expiration =
    order.type === 'certificate' ? `'{}'::jsonb` : `jsonb_build_object('expiration', iso_time(?::timestamptz))`
  const [allowed] = await query<{ fits: boolean; keyStands: boolean }>(
    database,
    `WITH allowed AS MATERIALIZED (
       SELECT quota_allows(?::text, 'orders', ?::integer) AS fits,
              ?::uuid IS NULL OR EXISTS (SELECT 1 FROM project_key WHERE id = ?::uuid AND active) AS key_stands),
     made AS (
       INSERT INTO secret_order (id, project_id, creator_id, type, meta, sealed_passphrase, project_key_id, created_at, updated_at)
       SELECT ?::uuid, ?, ?, ?, ?::jsonb || ${expiration}, ?::bytea, ?::uuid, now(), now()
         FROM allowed WHERE fits AND key_stands RETURNING id, lane),
     logged AS (${audit.sql})
     SELECT fits, key_stands AS "keyStands", (SELECT pg_notify(?::text, lane) FROM made) FROM allowed`,
    [
      ...[order.projectId, limit, key, key],
      ...[id, order.projectId, order.creatorId, order.type, JSON.stringify(order.meta)],
      ...(order.type === 'certificate' ? [] : [order.expiration]),
      ...[sealed?.ciphertext ?? null, key],
      ...audit.bindings,
      ORDER_CHANNEL,
    ],
  )
  if (allowed?.fits !== true) return 'quota'
  return allowed.keyStands ? 'stored' : 'key replaced'
}
