/**
 * provisioning_status, derived. The rules, which the SQL functions of the first migration carry out:
 *
 * A load balancer is
 * - ERROR when the last attempt at its newest generation failed, and also when that generation was applied and something broke later
 *   that cannot be mended (an amphora died and cannot be made again). Any new change raises the generation and so ends ERROR at once.
 * - PENDING_<change> while its newest generation is not applied, or it is being deleted
 * - ACTIVE otherwise
 *
 * An object below it is
 * - ACTIVE when its own last change is applied, whatever happens to its load balancer
 * - ERROR when it is not, and the load balancer's newest generation (which covers it) failed
 * - PENDING_<change> otherwise; one under deletion until its row is gone, even when an administrator counted its generation as applied
 *
 * Show, list, filters and the status tree all use these expressions, so they cannot disagree.
 */
export const loadBalancerStatus = (loadBalancer: string): string =>
  `provisioning_status(${['generation', 'change', 'applied_generation', 'fault_generation'].map(column => `${loadBalancer}.${column}`).join(', ')})`

/** @param object,loadBalancer aliases of the object's table and of its load balancer's */
export const childStatus = (object: string, loadBalancer = 'lb'): string =>
  `child_provisioning_status(${object}.generation, ${object}.change, ${loadBalancer}.generation, ${loadBalancer}.applied_generation, ${loadBalancer}.fault_generation)`

/**
 * operating_status of a health monitor, L7 policy or rule: it is never down by itself, only not there yet or switched off.
 */
export const switchOperatingStatus = (object: string, loadBalancer = 'lb'): string =>
  `CASE WHEN ${object}.admin_state_up AND (${object}.change <> 'create' OR ${object}.generation <= ${loadBalancer}.applied_generation) THEN 'ONLINE' ELSE 'OFFLINE' END`

/** Why a load balancer is in ERROR, for its owner; null when it is not. */
export const loadBalancerFault = (loadBalancer: string): string =>
  `CASE WHEN ${loadBalancerStatus(loadBalancer)} = 'ERROR' THEN json_build_object(
     'code', ${loadBalancer}.fault->>'code', 'text', ${loadBalancer}.fault->>'text',
     'since', ${timestamp(`${loadBalancer}.fault_since`)}, 'retry_at', ${timestamp(`${loadBalancer}.retry_at`)}) END`

/** A time as clients parse it: UTC, whole seconds, no zone suffix. */
export function timestamp(expression: string): string {
  return `date_trunc('second', ${expression} AT TIME ZONE 'UTC')`
}

export const OPERATING_STATUSES = ['ONLINE', 'OFFLINE', 'DEGRADED', 'ERROR', 'DRAINING', 'NO_MONITOR'] as const

export type OperatingStatus = (typeof OPERATING_STATUSES)[number]
