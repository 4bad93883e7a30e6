import type { ObservedAmphora } from './observation.js'

/**
 * Ids of the amphorae whose host and zone the machine of an amphora should avoid: those in other roles of its load
 * balancer. One that is being replaced counts only while its role has no other.
 */
export function apartFrom(
  amphorae: readonly Pick<ObservedAmphora, 'id' | 'role' | 'status' | 'replacing'>[],
  id: string,
): string[] {
  const role = amphorae.find(one => one.id === id)?.role
  const others = amphorae.filter(one => one.role !== role && one.status !== 'PENDING_DELETE')
  return others
    .filter(one => !one.replacing || !others.some(other => other.role === one.role && !other.replacing))
    .map(one => one.id)
}
