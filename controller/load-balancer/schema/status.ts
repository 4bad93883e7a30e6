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
     'since', ${timestamp(`${loadBalancer}.fault_since`)},
     'retry_at', ${timestamp(`coalesce(${loadBalancer}.retry_at, ${loadBalancer}.recheck_at)`)}) END`

/** A time in the form that clients parse: UTC, whole seconds, no zone suffix. */
export function timestamp(expression: string): string {
  return `date_trunc('second', ${expression} AT TIME ZONE 'UTC')`
}

export const OPERATING_STATUSES = ['ONLINE', 'OFFLINE', 'DEGRADED', 'ERROR', 'DRAINING', 'NO_MONITOR'] as const

export type OperatingStatus = (typeof OPERATING_STATUSES)[number]

/** Statuses of objects that work as asked, so that there is nothing to explain. */
const WELL: readonly OperatingStatus[] = ['ONLINE', 'NO_MONITOR']

export const statusNeedsReason = (status: OperatingStatus | undefined): boolean =>
  status !== undefined && !WELL.includes(status)

/**
 * SQL: why an object is not ONLINE, and since when; null if it works as asked. The health manager stores the reason
 * with the status; until the next report, the object's own switch may explain more.
 * @param label of the object, in lower case
 * @param reason SQL of the stored reason
 */
export const operatingReason = (object: string, label: string, reason = `${object}.operating_reason`): string =>
  `CASE WHEN ${object}.operating_status NOT IN (${WELL.map(status => `'${status}'`).join(', ')}) THEN json_build_object(
     'text', CASE WHEN NOT ${object}.admin_state_up THEN 'The ${label} is disabled (admin_state_up is false)'
                  ELSE coalesce(${reason}, 'No report on the ${label} has come yet') END,
     'since', ${timestamp(`${object}.operating_since`)}) END`

/**
 * SQL: the same for a load balancer, whose amphorae may lower its status, or be silent: then the statuses below it may be
 * out of date.
 */
export const loadBalancerReason = (loadBalancer: string): string =>
  `CASE WHEN ${loadBalancer}.admin_state_up AND ${loadBalancer}.unheard_since IS NOT NULL THEN json_build_object(
     'text', 'No amphora has been heard since ' || to_char(${timestamp(`${loadBalancer}.unheard_since`)}, 'YYYY-MM-DD"T"HH24:MI:SS') || ': the operating statuses may be out of date',
     'since', ${timestamp(`${loadBalancer}.unheard_since`)})
   ELSE ${operatingReason(
     loadBalancer,
     'load balancer',
     `CASE WHEN ${loadBalancer}.operating_status = ${loadBalancer}.reported_status THEN ${loadBalancer}.operating_reason ELSE ${loadBalancer}.impairment_reason END`,
   )} END`
