import { familyOf } from '../network/address.js'
import type { DatagramMember, DatagramPool } from '../protocol/datagrams.js'
import type { MemberStates } from './member-states.js'

/** The members of a pool that clients of one address family come to. */
export type Serving = {
  /** Those that new clients are spread over. */
  serving: DatagramMember[]
  /** Those among which `serving` changes when members go down or come back. */
  candidates: DatagramMember[]
}

/** Whether flows may go to the member: it is not disabled, and not known to be down. */
export const isUsable = ({ id, monitor }: DatagramPool, member: DatagramMember, states: MemberStates): boolean =>
  !member.disabled && (monitor === null || states.isUp(id, member.id) !== false)

/** Backup members serve, all of them, while no other member does. Members with weight 0 get no new clients. Pure. */
export function servingMembers(pool: DatagramPool, family: 4 | 6, states: MemberStates): Serving {
  const weighted = pool.members.filter(
    member => familyOf(member.address) === family && member.weight > 0 && !member.disabled,
  )
  const [primaries, backups] = [false, true].map(backup => {
    const candidates = weighted.filter(member => member.backup === backup)
    return { candidates, serving: candidates.filter(member => isUsable(pool, member, states)) }
  }) as [Serving, Serving]
  return primaries.serving.length > 0 ? primaries : backups
}
