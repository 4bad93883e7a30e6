/**
 * SQL that derives provisioning_status. The SQL functions of the first migration implement these rules:
 *
 * A load balancer is
 * - ERROR when the last attempt at its newest generation failed, or when that generation was applied and a
 *   later fault cannot be repaired (an amphora died and cannot be replaced). Any change raises the generation
 *   and so ends ERROR at once.
 * - PENDING_<change> while its newest generation is not applied, or while it is being deleted
 * - ACTIVE otherwise
 *
 * An object below it is
 * - ACTIVE when its own last change is applied, whatever the status of its load balancer
 * - ERROR when it is not, and the load balancer's newest generation (which includes it) failed
 * - PENDING_<change> otherwise; PENDING_DELETE until its row is deleted, even after an administrator's reset
 *
 * Show, list, filters and the status tree all use these expressions, so they always agree.
 */
export const loadBalancerStatus = (loadBalancer: string): string =>
  `provisioning_status(${['generation', 'change', 'applied_generation', 'fault_generation'].map(column => `${loadBalancer}.${column}`).join(', ')})`

/** @param object,loadBalancer aliases of the tables of the object and its load balancer */
export const childStatus = (object: string, loadBalancer = 'lb'): string =>
  `child_provisioning_status(${object}.generation, ${object}.change, ${loadBalancer}.generation, ${loadBalancer}.applied_generation, ${loadBalancer}.fault_generation)`

/**
 * operating_status of a health monitor, L7 policy or rule: OFFLINE until it is first applied and while it is
 * disabled, otherwise ONLINE.
 */
export const switchOperatingStatus = (object: string, loadBalancer = 'lb'): string =>
  `CASE WHEN ${object}.admin_state_up AND (${object}.change <> 'create' OR ${object}.generation <= ${loadBalancer}.applied_generation) THEN 'ONLINE' ELSE 'OFFLINE' END`

/** The fault shown to the owner of a load balancer in ERROR; otherwise null. */
export const loadBalancerFault = (loadBalancer: string): string =>
  `CASE WHEN ${loadBalancerStatus(loadBalancer)} = 'ERROR' THEN json_build_object(
     'code', ${loadBalancer}.fault->>'code', 'text', ${loadBalancer}.fault->>'text',
     'since', ${timestamp(`${loadBalancer}.fault_since`)}, 'retry_at', ${timestamp(`${loadBalancer}.retry_at`)}) END`

/** A time in the form that clients parse: UTC, whole seconds, no zone suffix. */
export function timestamp(expression: string): string {
  return `date_trunc('second', ${expression} AT TIME ZONE 'UTC')`
}

export const OPERATING_STATUSES = ['ONLINE', 'OFFLINE', 'DEGRADED', 'ERROR', 'DRAINING', 'NO_MONITOR'] as const

export type OperatingStatus = (typeof OPERATING_STATUSES)[number]
