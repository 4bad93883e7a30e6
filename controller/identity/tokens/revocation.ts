import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import { json, sql } from '../../database/sql.js'

// INVARIANT: a transaction that issues a token holds RIGHTS shared from before it reads any right until it commits. One
// that revokes a right, or rewrites tokens for a new one, holds RIGHTS exclusively from before its first write until it
// commits. So no token is issued on a right that is being revoked, and two changes never overwrite each other's view.
const RIGHTS = 'krater identity rights'

/** Call before reading the rights that a token is issued on. */
export async function lockRightsShared(trx: Knex): Promise<void> {
  await execute(trx, sql`SELECT pg_advisory_xact_lock_shared(hashtext(${RIGHTS}))`)
}

/** Call before changing anything that tokens may depend on. */
export async function lockRights(trx: Knex): Promise<void> {
  await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext(${RIGHTS}))`)
}

/** Revokes all tokens of these users, on any scope. */
export async function revokeTokensOfUsers(trx: Knex, userIds: readonly string[]): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE user_id = ANY(${userIds})`)
}

/** Revokes all tokens scoped to this project. */
export async function revokeTokensOnProject(trx: Knex, projectId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE project_id = ${projectId}`)
}

/** Revokes all tokens scoped to the domain or a project in it, and all tokens of the domain's users. */
export async function revokeTokensOfDomain(trx: Knex, domainId: string): Promise<void> {
  await execute(
    trx,
    sql`DELETE FROM token
         WHERE domain_id = ${domainId}
            OR project_id IN (SELECT id FROM project WHERE domain_id = ${domainId})
            OR user_id IN (SELECT id FROM local_user WHERE domain_id = ${domainId})`,
  )
}

/** Revokes the tokens of these users on one scope; the system if both IDs are null. */
export async function revokeTokensOnScope(
  trx: Knex,
  userIds: readonly string[],
  scope: { project_id: string | null; domain_id: string | null },
): Promise<void> {
  const { project_id, domain_id } = scope
  const onSystem = project_id === null && domain_id === null
  await execute(
    trx,
    sql`DELETE FROM token
         WHERE user_id = ANY(${userIds})
           AND project_id IS NOT DISTINCT FROM ${project_id} AND domain_id IS NOT DISTINCT FROM ${domain_id}
           AND (NOT ${onSystem}::boolean OR document -> 'system' IS NOT NULL)`,
  )
}

/** Revokes all tokens with a role, assigned or implied. */
export async function revokeTokensWithRole(trx: Knex, roleId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE ${carries(roleId)}`)
}

/** Revokes the tokens of application credentials with a role, assigned or implied. */
export async function revokeApplicationTokensWithRole(trx: Knex, roleId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE ${carries(roleId)} AND application_credential_id IS NOT NULL`)
}

const carries = (roleId: string) => sql`document -> 'roles' @> ${json([{ id: roleId }])}::jsonb`
