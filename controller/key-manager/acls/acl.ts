import * as z from 'zod'
import { type Fragment, trusted } from '../../database/sql.js'
import { filledText } from '../input.js'

const user = filledText(255)

/** The body of a PUT or PATCH. `read` is the only operation. */
export const aclBody = z
  .strictObject({
    read: z
      .strictObject({
        users: z.array(user).optional(),
        'project-access': z.boolean('must be true or false').optional(),
      })
      .optional(),
  })
  .meta({ title: 'ACL' })

export type AclBody = z.output<typeof aclBody>

/** Changes to an ACL; null leaves a field unchanged. */
export type AclChange = { users: string[] | null; projectAccess: boolean | null }

/**
 * The change that a body asks for. Pure.
 * @returns null when `read` is absent or empty
 */
export function parseAclChange({ read }: AclBody): AclChange | null {
  if (read === undefined || Object.keys(read).length === 0) return null
  return {
    users: read.users === undefined ? null : [...new Set(read.users)],
    projectAccess: read['project-access'] ?? null,
  }
}

/** SQL for the ACL of a row as JSON text. An object that never had one shows only the default project access. */
export const aclJson = (alias: string): Fragment =>
  trusted(`(CASE WHEN ${alias}.acl_created_at IS NULL
  THEN '{"read":{"project-access":true}}'
  ELSE json_build_object('read', json_build_object('project-access', ${alias}.acl_project_access, 'users', ${alias}.acl_users,
    'created', iso_time(${alias}.acl_created_at), 'updated', iso_time(${alias}.acl_updated_at)))::text END)`)
