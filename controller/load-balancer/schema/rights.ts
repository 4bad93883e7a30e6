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

/** The right that each route asks for: the one source of the routes' checks and of their test. A route without a row does not compile. */
export const ROUTE_RIGHTS = {
  'GET /lbaas/loadbalancers': 'read',
  'POST /lbaas/loadbalancers': 'write',
  'GET /lbaas/loadbalancers/:id': 'read',
  'PUT /lbaas/loadbalancers/:id': 'write',
  'DELETE /lbaas/loadbalancers/:id': 'write',
  'GET /lbaas/loadbalancers/:id/stats': 'read',
  'GET /lbaas/loadbalancers/:id/status': 'read',
  'GET /lbaas/loadbalancers/:id/statuses': 'read',
  'GET /lbaas/loadbalancers/:id/events': 'read',
  'PUT /lbaas/loadbalancers/:id/failover': 'admin',
  'GET /lbaas/listeners': 'read',
  'POST /lbaas/listeners': 'write',
  'GET /lbaas/listeners/:id': 'read',
  'PUT /lbaas/listeners/:id': 'write',
  'DELETE /lbaas/listeners/:id': 'write',
  'GET /lbaas/listeners/:id/stats': 'read',
  'GET /lbaas/pools': 'read',
  'POST /lbaas/pools': 'write',
  'GET /lbaas/pools/:id': 'read',
  'PUT /lbaas/pools/:id': 'write',
  'DELETE /lbaas/pools/:id': 'write',
  'GET /lbaas/pools/:id/stats': 'read',
  'GET /lbaas/pools/:pool/members': 'read members',
  'POST /lbaas/pools/:pool/members': 'write',
  'PUT /lbaas/pools/:pool/members': 'write',
  'GET /lbaas/pools/:pool/members/:id': 'read',
  'PUT /lbaas/pools/:pool/members/:id': 'write',
  'DELETE /lbaas/pools/:pool/members/:id': 'write',
  'GET /lbaas/healthmonitors': 'read',
  'POST /lbaas/healthmonitors': 'write',
  'GET /lbaas/healthmonitors/:id': 'read',
  'PUT /lbaas/healthmonitors/:id': 'write',
  'DELETE /lbaas/healthmonitors/:id': 'write',
  'GET /lbaas/l7policies': 'read',
  'POST /lbaas/l7policies': 'write',
  'GET /lbaas/l7policies/:id': 'read',
  'PUT /lbaas/l7policies/:id': 'write',
  'DELETE /lbaas/l7policies/:id': 'write',
  'GET /lbaas/l7policies/:policy/rules': 'read',
  'POST /lbaas/l7policies/:policy/rules': 'write',
  'GET /lbaas/l7policies/:policy/rules/:id': 'read',
  'PUT /lbaas/l7policies/:policy/rules/:id': 'write',
  'DELETE /lbaas/l7policies/:policy/rules/:id': 'write',
  'GET /lbaas/quotas': 'read quota',
  'GET /lbaas/quotas/defaults': 'read quota',
  'GET /lbaas/quotas/:project': 'read quota',
  'GET /lbaas/quotas/:project/default': 'read quota',
  'GET /lbaas/quotas/:project/usage': 'read quota',
  'PUT /lbaas/quotas/:project': 'write quota',
  'DELETE /lbaas/quotas/:project': 'write quota',
  'GET /lbaas/providers': 'read',
  'GET /lbaas/providers/:provider/flavor_capabilities': 'admin',
  'GET /lbaas/providers/:provider/availability_zone_capabilities': 'admin',
  'GET /lbaas/flavors': 'read',
  'POST /lbaas/flavors': 'admin',
  'GET /lbaas/flavors/:id': 'read',
  'PUT /lbaas/flavors/:id': 'admin',
  'DELETE /lbaas/flavors/:id': 'admin',
  'GET /lbaas/flavorprofiles': 'admin',
  'POST /lbaas/flavorprofiles': 'admin',
  'GET /lbaas/flavorprofiles/:id': 'admin',
  'PUT /lbaas/flavorprofiles/:id': 'admin',
  'DELETE /lbaas/flavorprofiles/:id': 'admin',
  'GET /lbaas/availabilityzones': 'read',
  'POST /lbaas/availabilityzones': 'admin',
  'GET /lbaas/availabilityzones/:name': 'read',
  'PUT /lbaas/availabilityzones/:name': 'admin',
  'DELETE /lbaas/availabilityzones/:name': 'admin',
  'GET /lbaas/availabilityzoneprofiles': 'admin',
  'POST /lbaas/availabilityzoneprofiles': 'admin',
  'GET /lbaas/availabilityzoneprofiles/:id': 'admin',
  'PUT /lbaas/availabilityzoneprofiles/:id': 'admin',
  'DELETE /lbaas/availabilityzoneprofiles/:id': 'admin',
  'GET /octavia/amphorae': 'admin',
  'GET /octavia/amphorae/:id': 'admin',
  'DELETE /octavia/amphorae/:id': 'admin',
  'GET /octavia/amphorae/:id/stats': 'admin',
  'PUT /octavia/amphorae/:id/failover': 'admin',
  'PUT /octavia/amphorae/:id/config': 'admin',
} as const satisfies Record<string, Right>

export type Route = keyof typeof ROUTE_RIGHTS

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
