import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'

export type Role = 'STANDALONE' | 'MASTER' | 'BACKUP'

/** The roles of a topology, in the order in which they get a new configuration: those without traffic first. */
const ROLES: Record<LoadBalancerTree['topology'], readonly Role[]> = {
  SINGLE: ['STANDALONE'],
  ACTIVE_STANDBY: ['BACKUP', 'MASTER'],
}

const VRRP_PRIORITY: Record<Role, number | null> = { STANDALONE: null, MASTER: 100, BACKUP: 90 }

export const rolesOf = (topology: LoadBalancerTree['topology']): readonly Role[] => ROLES[topology]

export const vrrpPriority = (role: Role): number | null => VRRP_PRIORITY[role]
