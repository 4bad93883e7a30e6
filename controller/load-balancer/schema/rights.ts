import { forbidden } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'

/**
 * Roles for each right: Octavia's load-balancer_* roles together with the newer reader, member and admin.
 * `owner`: sufficient for objects of the token's project. `everywhere`: sufficient for all projects.
 */
export const RIGHTS = {
  read: {
    owner: ['reader', 'member', 'load-balancer_observer', 'load-balancer_member'],
    everywhere: ['load-balancer_global_observer', 'load-balancer_admin', 'admin'],
  },
  write: { owner: ['member', 'load-balancer_member'], everywhere: ['load-balancer_admin', 'admin'] },
  // Autoscaling services read the members of any pool.
  'read members': {
    owner: ['reader', 'member', 'load-balancer_observer', 'load-balancer_member'],
    everywhere: ['load-balancer_global_observer', 'load-balancer_admin', 'admin', 'service'],
  },
  'read quota': {
    owner: ['reader', 'member', 'load-balancer_observer', 'load-balancer_member'],
    everywhere: ['load-balancer_global_observer', 'load-balancer_quota_admin', 'load-balancer_admin', 'admin'],
  },
  'write quota': { owner: [], everywhere: ['load-balancer_quota_admin', 'load-balancer_admin', 'admin'] },
  admin: { owner: [], everywhere: ['load-balancer_admin', 'admin'] },
} as const satisfies Record<string, { owner: readonly string[]; everywhere: readonly string[] }>

export type Right = keyof typeof RIGHTS

/** Rights that an attribute in a request needs, in addition to the right of the route. */
export const ATTRIBUTE_RIGHTS = {
  'POST loadbalancer vip_sg_ids': 'write',
  'PUT loadbalancer vip_sg_ids': 'write',
} as const satisfies Record<string, Right>

/** See the settings of the same names. */
export type RoleRules = { strict_roles: boolean; system_scope: boolean }

/** Roles that grant nothing under strict_roles; the token then needs reader or member. */
const LEGACY_ROLES: ReadonlySet<string> = new Set(['load-balancer_observer', 'load-balancer_member'])

/** System-scoped roles and the roles they stand for here, the most powerful first. */
const SYSTEM_ROLES = [
  ['admin', 'admin'],
  ['reader', 'load-balancer_global_observer'],
] as const

/**
 * The caller with its effective roles. Without a project, it has none, except those of a system-scoped token if
 * `system_scope` is set. With `strict_roles`, the legacy roles grant nothing.
 */
export function withEffectiveRoles(caller: Caller, { strict_roles, system_scope }: RoleRules): Caller {
  if (caller.project !== null) {
    return strict_roles ? { ...caller, roles: caller.roles.filter(role => !LEGACY_ROLES.has(role)) } : caller
  }
  const effective =
    caller.system && system_scope ? SYSTEM_ROLES.find(([role]) => caller.roles.includes(role)) : undefined
  return { ...caller, roles: effective === undefined ? [] : [effective[1]] }
}

/**
 * Whether a caller has a right on a project's objects.
 * @param caller with its effective roles
 * @param projectId null for the objects of every project
 */
export function isAllowed({ project, roles }: Caller, right: Right, projectId: string | null): boolean {
  const { owner, everywhere }: { owner: readonly string[]; everywhere: readonly string[] } = RIGHTS[right]
  return roles.some(
    role => everywhere.includes(role) || (project !== null && project.id === projectId && owner.includes(role)),
  )
}

/** @throws ApiError 403 */
export function authorise(caller: Caller, right: Right, projectId: string | null): void {
  if (!isAllowed(caller, right, projectId)) throw forbidden()
}
