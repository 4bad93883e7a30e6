import type { Datagrams } from '../protocol/datagrams.js'
import type { Marks } from './conntrack.js'
import type { MemberStates } from './member-states.js'
import {
  MEMBER_MASK,
  memberKey,
  memberOf,
  type Numbers,
  SERVICE_MASK,
  serviceKey,
  serviceMark,
  serviceOf,
} from './numbers.js'
import { isUsable } from './serving.js'

/** The numbers of the members that flows of a service may have, by the service's number. */
export type Allowed = ReadonlyMap<number, ReadonlySet<number>>

/** Pure. */
export function allowedFlows({ listeners, pools }: Datagrams, numbers: Numbers, states: MemberStates): Allowed {
  const members = new Map(
    pools.map(pool => [
      pool.id,
      new Set(
        pool.members
          .filter(member => isUsable(pool, member, states))
          .map(member => numbers.members.given[memberKey(pool.id, member)]!),
      ),
    ]),
  )
  return new Map(
    listeners.flatMap(listener =>
      listener.poolId === null
        ? []
        : [[numbers.services.given[serviceKey(listener)]!, members.get(listener.poolId) ?? new Set<number>()] as const],
    ),
  )
}

/**
 * What to delete, so that no flow stays with a member that left or is down, or with a service that is gone: as few
 * deletions as possible, since each reads the whole table of connections. Pure.
 */
export function flowsToDelete(marks: Iterable<number>, allowed: Allowed): Marks[] {
  const members = new Set([...allowed.values()].flatMap(numbers => [...numbers]))
  const deletions = new Map<string, Marks>()
  for (const mark of marks) {
    const [service, member] = [serviceOf(mark), memberOf(mark)]
    const numbers = allowed.get(service)
    if (numbers?.has(member)) continue
    const deletion =
      numbers === undefined || numbers.size === 0
        ? { mark: serviceMark(service), mask: Number(SERVICE_MASK) }
        : members.has(member)
          ? { mark, mask: 0xffffffff }
          : { mark: member, mask: Number(MEMBER_MASK) }
    deletions.set(`${deletion.mark}/${deletion.mask}`, deletion)
  }
  return [...deletions.values()]
}
