import type { Knex } from 'knex'
import { execute, many } from '../../database/query.js'
import { type Fragment, json, sql } from '../../database/sql.js'
import type { Named } from '../caller.js'

/** Where a role applies; the system if both IDs are null. */
export type RoleScope = { projectId: string | null; domainId: string | null }

/**
 * Selects the ID and name of a user's roles on one scope: its own and its groups', implied roles included. A role of a
 * domain counts only by the roles that it implies.
 * Takes values, or columns as fragments.
 */
const rolesHeld = (user: string | Fragment, project: string | null | Fragment, domain: string | null | Fragment) =>
  sql<Named>`
    WITH RECURSIVE held AS (
      SELECT a.role_id FROM assignment a
       WHERE (a.user_id = ${user} OR a.group_id IN (SELECT m.group_id FROM group_member m WHERE m.user_id = ${user}))
         AND a.project_id IS NOT DISTINCT FROM ${project} AND a.domain_id IS NOT DISTINCT FROM ${domain}
      UNION
      SELECT i.implied_role_id FROM implied_role i JOIN held ON i.prior_role_id = held.role_id
    )
    SELECT r.id, r.name FROM role r JOIN held ON held.role_id = r.id WHERE r.domain_id IS NULL`

/** All roles of a user on one scope, ordered by name. */
export const effectiveRoles = (database: Knex, userId: string, { projectId, domainId }: RoleScope): Promise<Named[]> =>
  many(database, sql<Named>`${rolesHeld(userId, projectId, domainId)} ORDER BY r.name`)

/** The roles of an application credential, implied roles included. */
export const applicationCredentialRoles = (database: Knex, id: string): Promise<Named[]> =>
  many(
    database,
    sql<Named>`
      WITH RECURSIVE held AS (
        SELECT role_id FROM application_credential_role WHERE application_credential_id = ${id}
        UNION
        SELECT implied_role_id FROM implied_role JOIN held ON prior_role_id = role_id
      )
      SELECT id, name FROM role JOIN held ON role_id = id ORDER BY name`,
  )

/** The tokens affected by a change of roles. */
export type Affected = { userIds: readonly string[] } | { roleId: string }

/**
 * Updates the roles in existing tokens, so that a new role takes effect at once, without another login. Tokens of
 * application credentials stay unchanged, since the roles of the credential limit them.
 */
export async function refreshTokens(trx: Knex, affected: Affected): Promise<void> {
  const isAffected =
    'userIds' in affected
      ? sql`t.user_id = ANY(${affected.userIds}::text[])`
      : sql`t.document -> 'roles' @> ${json([{ id: affected.roleId }])}::jsonb`
  await execute(
    trx,
    sql`UPDATE token t
           SET document = jsonb_set(t.document, '{roles}', (
                 SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'name', name) ORDER BY name), '[]')
                   FROM (${rolesHeld(sql`t.user_id`, sql`t.project_id`, sql`t.domain_id`)}) now_held))
         WHERE t.application_credential_id IS NULL AND jsonb_exists(t.document, 'roles') AND ${isAffected}`,
  )
}

/** The IDs of the users who have a role anywhere: assigned, by a group, or implied. */
export async function holdersOf(database: Knex, roleId: string): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ user_id: string }>`
      WITH RECURSIVE source AS (
        SELECT ${roleId}::text AS role_id
        UNION
        SELECT i.prior_role_id FROM implied_role i JOIN source ON source.role_id = i.implied_role_id
      )
      SELECT DISTINCT coalesce(a.user_id, m.user_id) AS user_id
        FROM assignment a JOIN source ON source.role_id = a.role_id LEFT JOIN group_member m ON m.group_id = a.group_id
       WHERE coalesce(a.user_id, m.user_id) IS NOT NULL`,
  )
  return rows.map(({ user_id }) => user_id)
}

/** The IDs of the users in a group. */
export async function membersOf(database: Knex, groupId: string): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ user_id: string }>`SELECT user_id FROM group_member WHERE group_id = ${groupId}`,
  )
  return rows.map(({ user_id }) => user_id)
}
