import { forbidden } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import type { LoadBalancerSettings } from '../options.js'

/** `owner`: roles that suffice for objects of the token's project. `everywhere`: for those of all projects. */
export type Grant = { owner: readonly string[]; everywhere: readonly string[] }

/** Which rules apply: Octavia's older ones, its newer ones, or what either allows. */
export type Policy = LoadBalancerSettings['policy']

const legacyReaders = ['load-balancer_observer', 'load-balancer_member']
const legacyAdmins = ['load-balancer_admin', 'admin']
const newReaders = ['reader', 'member']

const right = (legacy: Grant, newer: Grant): Readonly<Record<Policy, Grant>> => ({
  legacy,
  new: newer,
  union: {
    owner: [...new Set([...newer.owner, ...legacy.owner])],
    everywhere: [...new Set([...legacy.everywhere, ...newer.everywhere])],
  },
})

/**
 * Who has each right, by each policy. `legacy` is Octavia's advanced RBAC (roles load-balancer_*), `new` its rules for
 * Keystone's default roles, which leave load-balancer_admin only the administrators' operations.
 */
export const RIGHTS = {
  read: right(
    { owner: legacyReaders, everywhere: ['load-balancer_global_observer', ...legacyAdmins] },
    { owner: newReaders, everywhere: ['admin'] },
  ),
  write: right(
    { owner: ['load-balancer_member'], everywhere: legacyAdmins },
    { owner: ['member'], everywhere: ['admin'] },
  ),
  // Autoscaling services read the members of any pool.
  'read members': right(
    { owner: legacyReaders, everywhere: ['load-balancer_global_observer', ...legacyAdmins, 'service'] },
    { owner: newReaders, everywhere: ['admin', 'service'] },
  ),
  'read quota': right(
    {
      owner: legacyReaders,
      everywhere: ['load-balancer_global_observer', 'load-balancer_quota_admin', ...legacyAdmins],
    },
    { owner: newReaders, everywhere: ['admin'] },
  ),
  'write quota': right(
    { owner: [], everywhere: ['load-balancer_quota_admin', ...legacyAdmins] },
    { owner: [], everywhere: ['admin'] },
  ),
  admin: right({ owner: [], everywhere: legacyAdmins }, { owner: [], everywhere: legacyAdmins }),
} as const satisfies Record<string, Readonly<Record<Policy, Grant>>>

export type Right = keyof typeof RIGHTS

/** Rights that an attribute in a request needs, in addition to the right of the route. */
export const ATTRIBUTE_RIGHTS = {
  'POST loadbalancer vip_sg_ids': 'write',
  'PUT loadbalancer vip_sg_ids': 'write',
} as const satisfies Record<string, Right>

/** A caller of this API, with the roles that count and the rules that apply. */
export type Requester = Caller & { policy: Policy }

/** System-scoped roles and the legacy roles they stand for, the most powerful first. */
const SYSTEM_ROLES = [
  ['admin', 'admin'],
  ['reader', 'load-balancer_global_observer'],
] as const

/**
 * The caller with the roles that count. Without a project, it has none, except those of a system-scoped token if
 * `system_scope` is set: they apply whatever the policy.
 */
export function requesterOf(
  caller: Caller,
  { policy, system_scope }: Pick<LoadBalancerSettings, 'policy' | 'system_scope'>,
): Requester {
  if (caller.project !== null) return { ...caller, policy }
  const effective =
    caller.system && system_scope ? SYSTEM_ROLES.find(([role]) => caller.roles.includes(role)) : undefined
  return { ...caller, roles: effective === undefined ? [] : [effective[1]], policy: 'legacy' }
}

/**
 * Whether a caller has a right on a project's objects.
 * @param projectId null for the objects of every project
 */
export function isAllowed({ project, roles, policy }: Requester, name: Right, projectId: string | null): boolean {
  const { owner, everywhere } = RIGHTS[name][policy]
  return roles.some(
    role => everywhere.includes(role) || (project !== null && project.id === projectId && owner.includes(role)),
  )
}

/** @throws ApiError 403 */
export function authorise(caller: Requester, name: Right, projectId: string | null): void {
  if (!isAllowed(caller, name, projectId)) throw forbidden()
}
