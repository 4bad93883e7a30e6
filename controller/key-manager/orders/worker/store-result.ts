import type { Knex } from 'knex'
import type { Database } from '../../../database/connection.js'
import { one } from '../../../database/query.js'
import { type Fragment, identifier, join, sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import type { Claim } from '../../../queue/claim.js'
import { auditInsert } from '../../audit/record.js'
import type { Keyring, Sealed } from '../../crypto/keyring.js'
import { underActiveKey } from '../../crypto/under-active-key.js'
import { newId } from '../../ids.js'
import { LIVE, payloadContext } from '../../secrets/secret.js'
import { actorOf } from '../order.js'
import type { MadeSecret, Order, OrderOutcome } from '../outcome.js'
import { isHeldBy, truncateMessage, truncateSubStatus } from './settle.js'

type Made = Extract<OrderOutcome, { kind: 'made' }>

/**
 * `lost`: the order was deleted or settled, or another worker has claimed it since. `reference gone`: a secret for the
 * container was deleted.
 */
type Stored = 'settled' | 'lost' | 'reference gone'

type SealedSecret = { id: string; secret: MadeSecret; sealed: Sealed }

/**
 * Stores the whole result of an order with its new state, or nothing: one fenced statement, in one transaction with
 * `alsoStore`. Removes the claim and the passphrase.
 * @throws CryptoUnavailable
 */
export async function storeResult(
  { database, keyring }: { database: Database; keyring: Keyring },
  claim: Claim,
  order: Pick<Order, 'id' | 'projectId' | 'creatorId'>,
  made: Made,
): Promise<Stored> {
  const { alsoStore } = made
  return underActiveKey<Stored>(keyring, order.projectId, async () => {
    const secrets: SealedSecret[] = await Promise.all(
      made.secrets.map(async secret => {
        const id = newId()
        return { id, secret, sealed: await keyring.seal(order.projectId, secret.payload, payloadContext(id)) }
      }),
    )
    const containerId = made.container === null ? null : newId()
    const statement = resultStatement(claim, order, made, secrets, containerId)
    const store = async (on: Knex) => storedOutcome(await one(on, statement))
    if (alsoStore === undefined) return store(database)
    return inTransaction(database, async trx => {
      const outcome = await store(trx)
      if (outcome === 'settled') await alsoStore(trx, containerId)
      return outcome
    })
  })
}

type ResultRow = { settled: boolean; keysActive: boolean; referencesLive: boolean }

function storedOutcome({ settled, keysActive, referencesLive }: ResultRow): Stored | 'key replaced' {
  if (settled) return 'settled'
  if (!keysActive) return 'key replaced'
  return referencesLive ? 'lost' : 'reference gone'
}

function resultStatement(
  claim: Claim,
  order: Pick<Order, 'id' | 'projectId' | 'creatorId'>,
  { container, references = [], subStatus = 'Unknown', subStatusMessage = 'Unknown' }: Made,
  secrets: readonly SealedSecret[],
  containerId: string | null,
): Fragment<ResultRow> {
  const { projectId, creatorId } = order
  const secretId = container === null ? (secrets[0]?.id ?? null) : null
  const referenced = references.map(({ secretId: id }) => id)
  const referencesLive = sql`(SELECT count(*) FROM held) = ${new Set(referenced).size}::bigint`
  const placed = [
    ...secrets.map(({ id, secret }) => ({ id, role: secret.role })),
    ...references.map(({ secretId: id, role }) => ({ id, role })),
  ]
  const keyIds = secrets.map(({ sealed }) => sealed.projectKeyId)
  return sql<ResultRow>`
    WITH standing AS MATERIALIZED (
       SELECT NOT EXISTS (SELECT FROM unnest(${keyIds}::uuid[]) AS used (id)
                           WHERE NOT EXISTS (SELECT FROM project_key k WHERE k.id = used.id AND k.active)) AS keys),
     held AS MATERIALIZED (SELECT s.id FROM secret s WHERE s.id = ANY (${referenced}::uuid[]) AND ${LIVE} FOR SHARE OF s),
     mine AS (
       UPDATE secret_order SET status = 'ACTIVE', sub_status = ${truncateSubStatus(subStatus)},
              sub_status_message = ${truncateMessage(subStatusMessage)}, secret_id = ${secretId}::uuid,
              container_id = ${containerId}::uuid, sealed_passphrase = NULL, project_key_id = NULL, retry_at = NULL,
              lease_owner = NULL, lease_until = NULL, updated_at = now()
        WHERE ${isHeldBy(claim)} AND (SELECT keys FROM standing) AND ${referencesLive}
        RETURNING id),
     made AS (
       INSERT INTO secret (id, project_id, creator_id, name, secret_type, algorithm, mode, bit_length, content_type,
                           expiration, project_key_id, ciphertext, created_at, updated_at)
       SELECT v.*, now(), now() FROM mine, (VALUES ${join(secrets.map(made => secretRow(order, made)))}) AS v),
     box AS (
       INSERT INTO container (id, project_id, creator_id, name, type, created_at, updated_at)
       SELECT ${containerId}::uuid, ${projectId}, ${creatorId}, ${container?.name ?? null}, ${container?.type ?? null}, now(), now()
         FROM mine WHERE ${container !== null}::boolean RETURNING id),
     placed AS (
       INSERT INTO container_secret (container_id, secret_id, name)
       SELECT box.id, p.id, p.role
         FROM box, unnest(${placed.map(({ id }) => id)}::uuid[], ${placed.map(({ role }) => role)}::text[])
                   WITH ORDINALITY AS p (id, role, position)
        ORDER BY p.position)
     ${join(
       secrets.map(({ id }, at) => sql`, ${identifier(`logged_${at}`)} AS (${generationAudit(order, id)})`),
       '',
     )}
     SELECT EXISTS (SELECT FROM mine) AS settled, (SELECT keys FROM standing) AS "keysActive",
            ${referencesLive} AS "referencesLive"`
}

function secretRow(
  { projectId, creatorId }: Pick<Order, 'projectId' | 'creatorId'>,
  { id, secret, sealed }: SealedSecret,
): Fragment {
  const { name, secretType, algorithm, mode, bitLength, contentType, expiration } = secret
  return sql`(${id}::uuid, ${projectId}, ${creatorId}, ${name}, ${secretType}, ${algorithm}, ${mode}, ${bitLength}::integer,
              ${contentType}, ${expiration}::timestamptz, ${sealed.projectKeyId}::uuid, ${sealed.ciphertext}::bytea)`
}

const generationAudit = (order: Pick<Order, 'id' | 'projectId' | 'creatorId'>, secretId: string): Fragment =>
  auditInsert(
    actorOf(order),
    {
      action: 'secret.generate',
      outcome: 'success',
      targetType: 'secret',
      targetId: secretId,
      detail: { order: order.id },
    },
    sql`mine`,
  )
