import type { Knex } from 'knex'

// INVARIANT: who issues a token holds RIGHTS shared from before it reads any right until its commit; who takes a right away, or
// rewrites tokens for a new one, holds it exclusively from before its first write until its commit. So no token is issued on a
// right that is just going, and no two changes write over each other's view of it.
const RIGHTS = 'krater identity rights'

/** Before reading what a token will be issued on. */
export async function holdRights(trx: Knex): Promise<void> {
  await trx.raw('SELECT pg_advisory_xact_lock_shared(hashtext(?))', [RIGHTS])
}

/** Before changing anything that tokens may stand on. */
export async function lockRights(trx: Knex): Promise<void> {
  await trx.raw('SELECT pg_advisory_xact_lock(hashtext(?))', [RIGHTS])
}

/** Ends every token of these users, whatever their scope. */
export async function revokeTokensOfUsers(trx: Knex, userIds: readonly string[]): Promise<void> {
  await trx('token').whereIn('user_id', userIds).delete()
}

/** Ends every token scoped to this project. */
export async function revokeTokensOnProject(trx: Knex, projectId: string): Promise<void> {
  await trx('token').where({ project_id: projectId }).delete()
}

/** Ends every token scoped to the domain or to a project in it, and every token of the domain's users. */
export async function revokeTokensOfDomain(trx: Knex, domainId: string): Promise<void> {
  await trx('token')
    .where({ domain_id: domainId })
    .orWhereIn('project_id', trx('project').where({ domain_id: domainId }).select('id'))
    .orWhereIn('user_id', trx('local_user').where({ domain_id: domainId }).select('id'))
    .delete()
}

/** Ends the tokens of these users on one scope; with both ids null that is the system. */
export async function revokeTokensOnScope(
  trx: Knex,
  userIds: readonly string[],
  scope: { project_id: string | null; domain_id: string | null },
): Promise<void> {
  const onSystem = scope.project_id === null && scope.domain_id === null
  await trx('token')
    .whereIn('user_id', userIds)
    .where(scope)
    .modify(query => {
      if (onSystem) query.whereRaw(`document -> 'system' IS NOT NULL`)
    })
    .delete()
}

/** Ends the tokens that carry a role, by assignment or by implication. */
export async function revokeTokensWithRole(trx: Knex, roleId: string): Promise<void> {
  await tokensWithRole(trx, roleId).delete()
}

/** The same for the tokens of application credentials only. */
export async function revokeApplicationTokensWithRole(trx: Knex, roleId: string): Promise<void> {
  await tokensWithRole(trx, roleId).whereNotNull('application_credential_id').delete()
}

const tokensWithRole = (trx: Knex, roleId: string) =>
  trx('token').whereRaw(`document -> 'roles' @> ?::jsonb`, [JSON.stringify([{ id: roleId }])])
