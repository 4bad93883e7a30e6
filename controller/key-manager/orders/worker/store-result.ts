import type { Knex } from 'knex'
import type { Database } from '../../../database/connection.js'
import { query } from '../../../database/query.js'
import { inTransaction } from '../../../database/transaction.js'
import type { Claim } from '../../../queue/claim.js'
import { auditInsert } from '../../audit/record.js'
import type { Keyring, Sealed } from '../../crypto/keyring.js'
import { underActiveKey } from '../../crypto/under-active-key.js'
import { newId } from '../../ids.js'
import { LIVE, payloadContext } from '../../secrets/secret.js'
import { actorOf } from '../order.js'
import type { MadeSecret, Order, OrderOutcome } from '../outcome.js'
import { HELD, messageOf, subStatusOf } from './settle.js'

type Made = Extract<OrderOutcome, { kind: 'made' }>

/** `lost`: the order is gone or settled, or another worker has claimed it since. `reference gone`: a secret that the container should hold was deleted. */
type Stored = 'settled' | 'lost' | 'reference gone'

type SealedSecret = { id: string; secret: MadeSecret; sealed: Sealed }

/**
 * Stores all that an order has made together with its new state, or nothing: one fenced statement, in a transaction with whatever else belongs
 * to it. The claim and the passphrase are gone with it.
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
    const statement = resultStatement(claim, order, made, secrets)
    const store = async (on: Knex) => outcomeOf(await query<ResultRow>(on, statement.sql, statement.bindings))
    if (alsoStore === undefined) return store(database)
    return inTransaction(database, async trx => {
      const outcome = await store(trx)
      if (outcome === 'settled') await alsoStore(trx)
      return outcome
    })
  })
}

type ResultRow = { settled: boolean; keyStands: boolean; referencesStand: boolean }

function outcomeOf([row]: ResultRow[]): Stored | 'key replaced' {
  if (row?.settled === true) return 'settled'
  if (row?.keyStands === false) return 'key replaced'
  return row?.referencesStand === false ? 'reference gone' : 'lost'
}

const SECRET_COLUMNS =
  'id, project_id, creator_id, name, secret_type, algorithm, mode, bit_length, content_type, expiration, project_key_id, ciphertext'
const SECRET_ROW = '(?::uuid, ?, ?, ?, ?, ?, ?, ?::integer, ?, ?::timestamptz, ?::uuid, ?::bytea)'

function resultStatement(
  claim: Claim,
  order: Pick<Order, 'id' | 'projectId' | 'creatorId'>,
  { container, references = [], subStatus = 'Unknown', subStatusMessage = 'Unknown' }: Made,
  secrets: readonly SealedSecret[],
): { sql: string; bindings: unknown[] } {
  const containerId = container === null ? null : newId()
  const secretId = container === null ? (secrets[0]?.id ?? null) : null
  const placed = [
    ...secrets.map(({ id, secret }) => ({ id, role: secret.role })),
    ...references.map(({ secretId: id, role }) => ({ id, role })),
  ]
  const audits = secrets.map(({ id }) =>
    auditInsert(
      actorOf(order),
      {
        action: 'secret.generate',
        outcome: 'success',
        targetType: 'secret',
        targetId: id,
        detail: { order: order.id },
      },
      'mine',
    ),
  )
  const sql = `
    WITH standing AS MATERIALIZED (
       SELECT NOT EXISTS (SELECT FROM unnest(?::uuid[]) AS used (id)
                           WHERE NOT EXISTS (SELECT FROM project_key k WHERE k.id = used.id AND k.active)) AS keys),
     held AS MATERIALIZED (SELECT s.id FROM secret s WHERE s.id = ANY (?::uuid[]) AND ${LIVE} FOR SHARE OF s),
     mine AS (
       UPDATE secret_order SET status = 'ACTIVE', sub_status = ?, sub_status_message = ?, secret_id = ?::uuid,
              container_id = ?::uuid, sealed_passphrase = NULL, project_key_id = NULL, retry_at = NULL,
              lease_owner = NULL, lease_until = NULL, updated_at = now()
        WHERE ${HELD}
          AND (SELECT keys FROM standing) AND (SELECT count(*) FROM held) = ?::bigint
        RETURNING id),
     made AS (
       INSERT INTO secret (${SECRET_COLUMNS}, created_at, updated_at)
       SELECT v.*, now(), now() FROM mine, (VALUES ${secrets.map(() => SECRET_ROW).join(', ')}) AS v),
     box AS (
       INSERT INTO container (id, project_id, creator_id, name, type, created_at, updated_at)
       SELECT ?::uuid, ?, ?, ?, ?, now(), now() FROM mine WHERE ?::boolean RETURNING id),
     placed AS (
       INSERT INTO container_secret (container_id, secret_id, name)
       SELECT box.id, p.id, p.role FROM box, unnest(?::uuid[], ?::text[]) WITH ORDINALITY AS p (id, role, position)
        ORDER BY p.position)
     ${audits.map((audit, at) => `, logged_${at} AS (${audit.sql})`).join('')}
     SELECT EXISTS (SELECT FROM mine) AS settled, (SELECT keys FROM standing) AS "keyStands",
           (SELECT count(*) FROM held) = ?::bigint AS "referencesStand"`
  const referenced = references.map(({ secretId: id }) => id)
  const { projectId, creatorId } = order
  return {
    sql,
    bindings: [
      ...[secrets.map(({ sealed }) => sealed.projectKeyId), referenced],
      ...[subStatusOf(subStatus), messageOf(subStatusMessage), secretId, containerId],
      ...[claim.id, claim.fence, new Set(referenced).size],
      ...secrets.flatMap(({ id, secret, sealed }) => [
        ...[id, projectId, creatorId, secret.name, secret.secretType, secret.algorithm, secret.mode],
        ...[secret.bitLength, secret.contentType, secret.expiration, sealed.projectKeyId, sealed.ciphertext],
      ]),
      ...[containerId, projectId, creatorId, container?.name ?? null, container?.type ?? null, container !== null],
      ...[placed.map(({ id }) => id), placed.map(({ role }) => role)],
      ...audits.flatMap(audit => audit.bindings),
      new Set(referenced).size,
    ],
  }
}
