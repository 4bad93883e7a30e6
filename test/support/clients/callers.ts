import type { Caller } from '../../../controller/identity/caller.js'

/** Projects of the tests' callers. */
export const OWN = 'a'.repeat(32)
export const FOREIGN = 'b'.repeat(32)

/** Instead of a project: the whole system. */
export const SYSTEM = 'system'

/** A token of the tests says who it is: `<role>[,<role>]@<project>`, or `<role>@` without a project. */
export const tokenOf = (roles: string, project = OWN): string => `${roles}@${project}`

/** Who a token of the tests stands for; null when it is none. */
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
