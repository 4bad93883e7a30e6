import type { Knex } from 'knex'
import { execute, maybeOne } from '../../../database/query.js'
import { json, sql } from '../../../database/sql.js'
import { inTransaction, isUniqueViolation } from '../../../database/transaction.js'
import { type Actor, auditInsert, recordAudit } from '../../audit/record.js'
import { isId, newId } from '../../ids.js'
import type { Service } from '../../service.js'
import { lockProject, type RateLimit, requireRate } from '../rate-limits.js'
import { type AccountStatus, accountStatus } from '../rules/state.js'
import type { AccountKey } from '../signatures/jws.js'

export type Account = {
  id: string
  projectId: string
  /** Of the binding key, for whom the account acts. */
  creatorId: string
  jwk: AccountKey
  thumbprint: string
  contact: readonly string[]
  status: AccountStatus
}

type Row = Omit<Account, 'status'> & { deactivated: boolean; bindingRevoked: boolean }

const COLUMNS = sql`a.id, a.project_id AS "projectId", b.creator_id AS "creatorId", a.jwk, a.thumbprint, a.contact,
  a.deactivated_at IS NOT NULL AS deactivated, b.revoked_at IS NOT NULL AS "bindingRevoked"
  FROM acme_account a JOIN acme_binding_key b ON b.id = a.binding_key_id`

const accountOf = ({ deactivated, bindingRevoked, ...row }: Row): Account => ({
  ...row,
  status: accountStatus({ deactivated, bindingRevoked }),
})

export async function findAccount(database: Knex, id: string): Promise<Account | null> {
  const row = isId(id) ? await maybeOne(database, sql<Row>`SELECT ${COLUMNS} WHERE a.id = ${id}`) : undefined
  return row === undefined ? null : accountOf(row)
}

export async function findAccountByKey(database: Knex, thumbprint: string): Promise<Account | null> {
  const row = await maybeOne(database, sql<Row>`SELECT ${COLUMNS} WHERE a.thumbprint = ${thumbprint}`)
  return row === undefined ? null : accountOf(row)
}

export type NewAccount = Pick<Account, 'projectId' | 'jwk' | 'thumbprint' | 'contact'> & { bindingKeyId: string }

/**
 * Stores an account with its audit record.
 * @returns its id; null if a concurrent request made one with this key, or the binding key was revoked
 * @throws AcmeProblem rateLimited
 */
export async function createAccount(
  database: Service['database'],
  account: NewAccount,
  limit: RateLimit,
  actor: Actor,
): Promise<string | null> {
  const id = newId()
  const { projectId, bindingKeyId, jwk, thumbprint, contact } = account
  return inTransaction(database, async trx => {
    await lockProject(trx, projectId)
    await requireRate(trx, sql`acme_account WHERE project_id = ${projectId}`, limit, 'new accounts of the project')
    const made = await execute(
      trx,
      sql`INSERT INTO acme_account (id, binding_key_id, project_id, jwk, thumbprint, contact)
          SELECT ${id}::uuid, b.id, b.project_id, ${json(jwk)}::jsonb, ${thumbprint}, ${contact}::text[] FROM acme_binding_key b
           WHERE b.id = ${bindingKeyId} AND b.revoked_at IS NULL FOR SHARE OF b ON CONFLICT (thumbprint) DO NOTHING`,
    )
    if (made === 0) return null
    const detail = { key: bindingKeyId, thumbprint }
    await recordAudit(trx, actor, { ...entryFor('acme-account.create', id), detail })
    return id
  })
}

const entryFor = (action: 'acme-account.create' | 'acme-account.change', id: string) =>
  ({ action, outcome: 'success', targetType: 'acme-account', targetId: id }) as const

export async function changeContact(database: Knex, id: string, contact: readonly string[]): Promise<void> {
  await execute(database, sql`UPDATE acme_account SET contact = ${contact}::text[] WHERE id = ${id}`)
}

/** Deactivates an account for ever. */
export async function deactivateAccount(database: Knex, id: string, actor: Actor): Promise<void> {
  const entry = { ...entryFor('acme-account.change', id), detail: { change: 'deactivated' } }
  await execute(
    database,
    sql`WITH gone AS (UPDATE acme_account SET deactivated_at = now() WHERE id = ${id} AND deactivated_at IS NULL RETURNING id),
        logged AS (${auditInsert(actor, entry, sql`gone`)}) SELECT 1`,
  )
}

/** Gives an account another key. @returns false if another account has that key, or the account's key changed meanwhile */
export async function replaceKey(
  database: Knex,
  { id, from, jwk, thumbprint }: { id: string; from: string; jwk: AccountKey; thumbprint: string },
  actor: Actor,
): Promise<boolean> {
  const entry = { ...entryFor('acme-account.change', id), detail: { change: 'key', thumbprint } }
  const changed = await maybeOne(
    database,
    sql<{ id: string }>`
      WITH changed AS (
        UPDATE acme_account SET jwk = ${json(jwk)}::jsonb, thumbprint = ${thumbprint}
         WHERE id = ${id} AND thumbprint = ${from} AND deactivated_at IS NULL RETURNING id),
      logged AS (${auditInsert(actor, entry, sql`changed`)}) SELECT id FROM changed`,
  ).catch(error => {
    if (isUniqueViolation(error)) return undefined
    throw error
  })
  return changed !== undefined
}
