import { forbidden } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'

/**
 * Who may do what: the union of the load-balancer_* roles and of the newer reader/member/admin defaults.
 * `owner`: roles that suffice for objects of the token's own project. `everywhere`: roles that suffice for every project.
 */
export const RIGHTS = {
  read: {
    owner: ['reader', 'member', 'load-balancer_observer', 'load-balancer_member'],
    everywhere: ['load-balancer_global_observer', 'load-balancer_admin', 'admin'],
  },
  write: { owner: ['member', 'load-balancer_member'], everywhere: ['load-balancer_admin', 'admin'] },
  // Autoscaling services watch the members of any pool.
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

/** Rights that single attributes ask for beside their route's when a request carries them. */
export const ATTRIBUTE_RIGHTS = {
  'POST loadbalancer vip_sg_ids': 'write',
  'PUT loadbalancer vip_sg_ids': 'write',
} as const satisfies Record<string, Right>

/** Whose rules hold; see the settings of the same names. */
export type RoleRules = { strict_roles: boolean; system_scope: boolean }

/** Roles that the newer rules let count only beside reader or member. */
const OLDER_ROLES: ReadonlySet<string> = new Set(['load-balancer_observer', 'load-balancer_member'])

/** What a role in the whole system stands for here, the greatest first. */
const SYSTEM_ROLES = [
  ['admin', 'admin'],
  ['reader', 'load-balancer_global_observer'],
] as const

/**
 * The caller with the roles that count. Without a project none do, but for those in the whole system where the operator lets them; strict
 * rules pass over the older roles.
 */
export function rolesThatCount(caller: Caller, { strict_roles, system_scope }: RoleRules): Caller {
  if (caller.project !== null) {
    return strict_roles ? { ...caller, roles: caller.roles.filter(role => !OLDER_ROLES.has(role)) } : caller
  }
  const counted = caller.system && system_scope ? SYSTEM_ROLES.find(([role]) => caller.roles.includes(role)) : undefined
  return { ...caller, roles: counted === undefined ? [] : [counted[1]] }
}

/**
 * Whether a caller has a right on a project's objects.
 * @param caller with the roles that count
 * @param projectId null asks for objects of every project
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
