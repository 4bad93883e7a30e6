import type { Knex } from 'knex'
import type { Named } from '../../caller.js'

/** On what a role is held; with both ids null that is the system. */
export type RoleScope = { projectId: string | null; domainId: string | null }

/**
 * SQL that selects id and name of all roles of a user on one scope: its own and those of its groups, implied ones included.
 * Takes trusted SQL expressions: parameters or columns.
 */
const rolesHeld = (user: string, project: string, domain: string) => `
  WITH RECURSIVE held AS (
    SELECT a.role_id FROM assignment a
     WHERE (a.user_id = ${user} OR a.group_id IN (SELECT m.group_id FROM group_member m WHERE m.user_id = ${user}))
       AND a.project_id IS NOT DISTINCT FROM ${project} AND a.domain_id IS NOT DISTINCT FROM ${domain}
    UNION
    SELECT i.implied_role_id FROM implied_role i JOIN held ON i.prior_role_id = held.role_id
  )
  SELECT r.id, r.name FROM role r JOIN held ON held.role_id = r.id`

/** All roles of a user on one scope, in the order of their names. */
export async function effectiveRoles(database: Knex, userId: string, scope: RoleScope): Promise<Named[]> {
  const { rows } = await database.raw(`${rolesHeld(':userId', ':projectId', ':domainId')} ORDER BY r.name`, {
    userId,
    ...scope,
  })
  return rows
}

/** The roles that an application credential was given, implied ones included. */
export async function rolesOfApplicationCredential(database: Knex, id: string): Promise<Named[]> {
  const { rows } = await database.raw(
    `WITH RECURSIVE held AS (
       SELECT role_id FROM application_credential_role WHERE application_credential_id = ?
       UNION
       SELECT implied_role_id FROM implied_role JOIN held ON prior_role_id = role_id
     )
     SELECT id, name FROM role JOIN held ON role_id = id ORDER BY name`,
    [id],
  )
  return rows
}

/** Which tokens a change of roles concerns. */
export type Concerned = { userIds: readonly string[] } | { roleId: string }

/**
 * Brings the roles in standing tokens up to date, so that a new role counts at once, without another login. Tokens of application credentials
 * are bounded by what these were given, and stay as they are.
 */
export async function refreshTokens(trx: Knex, concerned: Concerned): Promise<void> {
  await trx('token as t')
    .where({ application_credential_id: null })
    .whereRaw(`jsonb_exists(document, 'roles')`)
    .modify(tokens => {
      if ('userIds' in concerned) tokens.whereIn('user_id', concerned.userIds)
      else tokens.whereRaw(`document -> 'roles' @> ?::jsonb`, [JSON.stringify([{ id: concerned.roleId }])])
    })
    .update({
      document: trx.raw(
        `jsonb_set(document, '{roles}', (
           SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'name', name) ORDER BY name), '[]')
             FROM (${rolesHeld('t.user_id', 't.project_id', 't.domain_id')}) now_held))`,
      ),
    })
}
