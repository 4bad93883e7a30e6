import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import { json, sql } from '../../database/sql.js'

// INVARIANT: who issues a token holds RIGHTS shared from before it reads any right until its commit; who takes a right away, or
// rewrites tokens for a new one, holds it exclusively from before its first write until its commit. So no token is issued on a
// right that is just going, and no two changes write over each other's view of it.
const RIGHTS = 'krater identity rights'

/** Before reading what a token will be issued on. */
export async function holdRights(trx: Knex): Promise<void> {
  await execute(trx, sql`SELECT pg_advisory_xact_lock_shared(hashtext(${RIGHTS}))`)
}

/** Before changing anything that tokens may stand on. */
export async function lockRights(trx: Knex): Promise<void> {
  await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext(${RIGHTS}))`)
}

/** Ends every token of these users, whatever their scope. */
export async function revokeTokensOfUsers(trx: Knex, userIds: readonly string[]): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE user_id = ANY(${userIds})`)
}

/** Ends every token scoped to this project. */
export async function revokeTokensOnProject(trx: Knex, projectId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE project_id = ${projectId}`)
}

/** Ends every token scoped to the domain or to a project in it, and every token of the domain's users. */
export async function revokeTokensOfDomain(trx: Knex, domainId: string): Promise<void> {
  await execute(
    trx,
    sql`DELETE FROM token
         WHERE domain_id = ${domainId}
            OR project_id IN (SELECT id FROM project WHERE domain_id = ${domainId})
            OR user_id IN (SELECT id FROM local_user WHERE domain_id = ${domainId})`,
  )
}

/** Ends the tokens of these users on one scope; with both ids null that is the system. */
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

/** Ends the tokens that carry a role, by assignment or by implication. */
export async function revokeTokensWithRole(trx: Knex, roleId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE ${carries(roleId)}`)
}

/** The same for the tokens of application credentials only. */
export async function revokeApplicationTokensWithRole(trx: Knex, roleId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM token WHERE ${carries(roleId)} AND application_credential_id IS NOT NULL`)
}

const carries = (roleId: string) => sql`document -> 'roles' @> ${json([{ id: roleId }])}::jsonb`
