import { randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import { execute, many, maybeOne, one } from '../../../database/query.js'
import { type Fragment, insertion, json, sql, unprepared } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { isId, newId } from '../../ids.js'
import type { Service } from '../../service.js'
import { AcmeProblem, type Identifier } from '../problem.js'
import { lockProject, requireRate } from '../rate-limits.js'
import { authorizedName, challengesFor, isWildcard } from '../rules/identifiers.js'
import type { ChallengeStatus, OrderFacts } from '../rules/state.js'
import type { Account } from './accounts.js'

/** How long a client has to prove its identifiers and finalize, and how long that proof is good for. */
export const ORDER_DAYS = 2

/** How long an order is kept after its end, and after that of its certificate. */
const KEPT_DAYS = { unfinished: 1, finalized: 30 } as const

export type AcmeOrder = OrderFacts & {
  id: string
  accountId: string
  projectId: string
  identifiers: readonly Identifier[]
  notBefore: Date | null
  notAfter: Date | null
  replaces: string | null
  authorizationIds: readonly string[]
  secretOrderId: string | null
  containerId: string | null
  /** Why the certificate was not issued, with the key manager's status; null otherwise. */
  errorReason: string | null
  errorStatus: string | null
}

type Row = Omit<AcmeOrder, 'authorizations' | 'authorizationIds'> & {
  proofs: readonly { id: string; challenges: readonly ChallengeStatus[]; deactivated: boolean; expiresAt: string }[]
}

const COLUMNS = sql`o.id, o.account_id AS "accountId", o.project_id AS "projectId", o.identifiers, o.not_before AS "notBefore",
  o.not_after AS "notAfter", o.replaces, o.secret_order_id AS "secretOrderId", o.expires_at AS "expiresAt",
  CASE WHEN o.secret_order_id IS NULL THEN NULL
       WHEN s.id IS NULL OR s.deleted_at IS NOT NULL AND s.status <> 'ACTIVE' THEN 'gone' ELSE s.status END AS issuance,
  s.container_id AS "containerId", s.error_reason AS "errorReason", s.error_status_code AS "errorStatus",
  (SELECT json_agg(json_build_object('id', z.id, 'deactivated', z.deactivated_at IS NOT NULL, 'expiresAt', z.expires_at,
            'challenges', (SELECT json_agg(c.status) FROM acme_challenge c WHERE c.authorization_id = z.id)) ORDER BY z.position)
     FROM acme_authorization z WHERE z.order_id = o.id) AS proofs
  FROM acme_order o LEFT JOIN secret_order s ON s.id = o.secret_order_id`

const orderOf = ({ proofs, ...row }: Row): AcmeOrder => ({
  ...row,
  authorizationIds: proofs.map(({ id }) => id),
  authorizations: proofs.map(({ challenges, deactivated, expiresAt }) => ({
    challenges,
    deactivated,
    expiresAt: new Date(expiresAt),
  })),
})

/** @param lock such as `FOR UPDATE OF o` */
export async function findOrder(database: Knex, id: string, lock: Fragment = sql``): Promise<AcmeOrder | null> {
  const row = isId(id) ? await maybeOne(database, sql<Row>`SELECT ${COLUMNS} WHERE o.id = ${id} ${lock}`) : undefined
  return row === undefined ? null : orderOf(row)
}

export type OrderLimits = { perAccount: number; perProject: number; names: number; failures: number }

export type NewOrder = {
  identifiers: readonly Identifier[]
  notBefore: Date | null
  notAfter: Date | null
  /** Of the certificate it replaces. */
  replaces: string | null
}

/**
 * Stores an order with its authorizations and their challenges.
 * @throws AcmeProblem rateLimited, or alreadyReplaced if another finalized order replaces the same certificate
 */
export async function createOrder(
  { database }: Pick<Service, 'database'>,
  account: Account,
  order: NewOrder,
  limits: OrderLimits,
): Promise<string> {
  const id = newId()
  const { identifiers, notBefore, notAfter, replaces } = order
  await inTransaction(database, async trx => {
    await lockProject(trx, account.projectId)
    await requireRates(trx, account, limits, identifiers.length)
    if (replaces !== null) await requireUnreplaced(trx, replaces)
    await execute(
      trx,
      sql`INSERT INTO acme_order (id, account_id, project_id, identifiers, not_before, not_after, replaces, expires_at, purge_at)
          VALUES (${id}, ${account.id}, ${account.projectId}, ${json(identifiers)}::jsonb, ${notBefore}::timestamptz,
                  ${notAfter}::timestamptz, ${replaces}, date_trunc('second', now()) + ${ORDER_DAYS} * interval '1 day',
                  now() + ${ORDER_DAYS + KEPT_DAYS.unfinished} * interval '1 day')`,
    )
    await insertAuthorizations(trx, account, id, identifiers)
  })
  return id
}

async function requireRates(trx: Knex, account: Account, limits: OrderLimits, names: number): Promise<void> {
  const ofAccount = sql`account_id = ${account.id}`
  await requireRate(trx, sql`acme_order WHERE ${ofAccount}`, { perHour: limits.perAccount }, 'orders of this account')
  const ofProject = sql`acme_order WHERE project_id = ${account.projectId}`
  await requireRate(trx, ofProject, { perHour: limits.perProject }, 'orders of the project')
  const ofNames = sql`acme_authorization WHERE project_id = ${account.projectId}`
  await requireRate(trx, ofNames, { perHour: limits.names, added: names }, 'names in orders of the project')
  const failed = sql`acme_challenge WHERE status = 'invalid' AND ${ofAccount}`
  await requireRate(
    trx,
    failed,
    { perHour: limits.failures, column: sql`settled_at` },
    'failed validations of this account',
  )
}

async function requireUnreplaced(trx: Knex, replaces: string): Promise<void> {
  const other = await maybeOne(
    trx,
    sql`SELECT o.id FROM acme_order o JOIN secret_order s ON s.id = o.secret_order_id
         WHERE o.replaces = ${replaces} AND s.status <> 'ERROR'`,
  )
  if (other !== undefined) throw new AcmeProblem('alreadyReplaced', 'Another order has replaced this certificate.')
}

const TOKEN_BYTES = 32

async function insertAuthorizations(
  trx: Knex,
  { id: account_id, projectId: project_id }: Account,
  order_id: string,
  identifiers: readonly Identifier[],
): Promise<void> {
  const expires_at = sql`(SELECT expires_at FROM acme_order WHERE id = ${order_id})`
  const authorizations = identifiers.map((identifier, position) => ({
    ...{ id: newId(), order_id, account_id, project_id, position, expires_at },
    ...{ type: identifier.type, value: authorizedName(identifier), wildcard: isWildcard(identifier) },
  }))
  const challenges = identifiers.flatMap((identifier, at) =>
    challengesFor(identifier).map((type, position) => ({
      ...{ id: newId(), authorization_id: authorizations[at]?.id ?? '', account_id, project_id },
      ...{ position, type, token: randomBytes(TOKEN_BYTES).toString('base64url') },
    })),
  )
  await execute(trx, unprepared(sql`INSERT INTO acme_authorization ${insertion(authorizations)}`))
  await execute(trx, unprepared(sql`INSERT INTO acme_challenge ${insertion(challenges)}`))
}

/** Records which order of the key manager issues the certificate. @param days the longest life of a certificate */
export async function markFinalized(trx: Knex, id: string, secretOrderId: string, days: number): Promise<void> {
  await execute(
    trx,
    sql`UPDATE acme_order SET secret_order_id = ${secretOrderId}, purge_at = now() + ${days + KEPT_DAYS.finalized} * interval '1 day'
         WHERE id = ${id}`,
  )
}

const LIST_PAGE = 100

/** The orders of an account that are open or finalized, the newest first, page by page. @param after id of the last one before the page */
export async function listOrders(
  database: Knex,
  accountId: string,
  after: string | null,
): Promise<{ ids: string[]; next: string | null }> {
  const from =
    after !== null && isId(after)
      ? sql`AND (o.created_at, o.id) < (SELECT created_at, id FROM acme_order WHERE id = ${after} AND account_id = ${accountId})`
      : sql``
  const rows = await many(
    database,
    sql<{ id: string }>`
      SELECT o.id FROM acme_order o
       WHERE o.account_id = ${accountId} AND (o.secret_order_id IS NOT NULL OR o.expires_at > now()) ${from}
       ORDER BY o.created_at DESC, o.id DESC LIMIT ${LIST_PAGE + 1}`,
  )
  const ids = rows.map(({ id }) => id).slice(0, LIST_PAGE)
  return { ids, next: rows.length > LIST_PAGE ? (ids.at(-1) ?? null) : null }
}

/** Whether an account of the project has proven every identifier, lately. */
export async function provesAll(
  database: Knex,
  accountId: string,
  identifiers: readonly Identifier[],
): Promise<boolean> {
  const { proven } = await one(
    database,
    sql<{ proven: number }>`
      SELECT count(*) AS proven FROM unnest(${identifiers.map(({ type }) => type)}::text[],
          ${identifiers.map(authorizedName)}::text[], ${identifiers.map(isWildcard)}::boolean[]) AS asked (type, value, wildcard)
       WHERE EXISTS (SELECT FROM acme_authorization z JOIN acme_challenge c ON c.authorization_id = z.id
                      WHERE z.account_id = ${accountId} AND z.type = asked.type AND z.value = asked.value
                        AND z.wildcard = asked.wildcard AND z.expires_at > now() AND z.deactivated_at IS NULL AND c.status = 'valid')`,
  )
  return proven === identifiers.length
}
