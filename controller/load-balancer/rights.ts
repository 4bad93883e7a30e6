import { forbidden } from '../http/errors.js'
import type { Caller } from '../identity/caller.js'

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
  'GET /lbaas/providers': 'read',
  'GET /octavia/amphorae': 'admin',
  'GET /octavia/amphorae/:id': 'admin',
  'DELETE /octavia/amphorae/:id': 'admin',
  'GET /octavia/amphorae/:id/stats': 'admin',
  'PUT /octavia/amphorae/:id/failover': 'admin',
  'PUT /octavia/amphorae/:id/config': 'admin',
} as const satisfies Record<string, Right>

export type Route = keyof typeof ROUTE_RIGHTS

/**
 * Whether a caller has a right on a project's objects. Only tokens that are scoped to a project have any.
 * @param projectId null asks for objects of every project
 */
export function isAllowed({ project, roles }: Caller, right: Right, projectId: string | null): boolean {
  if (project === null) return false
  const { owner, everywhere }: { owner: readonly string[]; everywhere: readonly string[] } = RIGHTS[right]
  return roles.some(role => everywhere.includes(role) || (project.id === projectId && owner.includes(role)))
}

/** @throws ApiError 403 */
export function authorise(caller: Caller, right: Right, projectId: string | null): void {
  if (!isAllowed(caller, right, projectId)) throw forbidden()
}
