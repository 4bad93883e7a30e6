import type { Caller } from '../../../controller/identity/caller.js'

/** Projects of the tests' callers. */
export const OWN = 'a'.repeat(32)
export const FOREIGN = 'b'.repeat(32)

/** The whole system, in place of a project. */
export const SYSTEM = 'system'

/** A test token names its caller: `<role>[,<role>]@<project>`, or `<role>@` without a project. */
export const tokenOf = (roles: string, project = OWN): string => `${roles}@${project}`

/** The caller of a test token; null when the token is invalid. */
export function callerOf(token: string): Caller | null {
  const [roles, project] = token.split('@')
  if (roles === undefined || project === undefined) return null
  const domain = { id: 'default', name: 'Default' }
  return {
    user: { id: `user-${roles}`, name: roles, domain },
    project: project === '' || project === SYSTEM ? null : { id: project, name: project, domain },
    domain: null,
    system: project === SYSTEM,
    roles: roles.split(','),
    expiresAt: new Date(Date.now() + 3_600_000),
  }
}
