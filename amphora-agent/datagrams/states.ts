import type { FailedCheck } from '../protocol/checks.js'
import type { DatagramMember, DatagramPool, Datagrams } from '../protocol/datagrams.js'
import type { ListenerState, MemberState, PoolState } from '../protocol/heartbeat.js'
import type { MemberStates } from './member-states.js'
import { isUsable } from './serving.js'

/** What reports say of UDP and SCTP listeners, by id. */
export type DatagramStates = {
  listeners: ReadonlyMap<string, ListenerState>
  pools: ReadonlyMap<string, { state: PoolState; members: ReadonlyMap<string, ReportedMember> }>
}

/** A member's state, and why its check failed if it is down. */
type ReportedMember = { state: MemberState; check: FailedCheck | null }

export const NO_DATAGRAMS: DatagramStates = { listeners: new Map(), pools: new Map() }

/**
 * As HAProxy reports its own: a pool without members is up, and a listener is open whatever its pool does. Pure.
 * @param isInForce whether the kernel balances
 * @param flows under way, by listener id
 */
export function datagramStates(
  { listeners, pools }: Datagrams,
  states: MemberStates,
  isInForce: boolean,
  flows: ReadonlyMap<string, number>,
): DatagramStates {
  const listenerState = (id: string, limit: number | null): ListenerState => {
    if (!isInForce) return 'DOWN'
    return limit !== null && (flows.get(id) ?? 0) >= limit ? 'FULL' : 'OPEN'
  }
  return {
    listeners: new Map(listeners.map(({ id, limit }) => [id, listenerState(id, limit)])),
    pools: new Map(
      pools.map(pool => [
        pool.id,
        {
          state: pool.members.length === 0 || pool.members.some(member => serves(pool, member, states)) ? 'UP' : 'DOWN',
          members: new Map(pool.members.map(member => [member.id, reported(pool, member, states)])),
        },
      ]),
    ),
  }
}

const serves = (pool: DatagramPool, member: DatagramMember, states: MemberStates): boolean =>
  member.weight > 0 && isUsable(pool, member, states)

function reported(pool: DatagramPool, member: DatagramMember, states: MemberStates): ReportedMember {
  const state = stateOf(pool, member, states)
  return { state, check: state === 'DOWN' ? states.failedCheck(pool.id, member.id) : null }
}

function stateOf(pool: DatagramPool, member: DatagramMember, states: MemberStates): MemberState {
  if (member.disabled) return 'MAINT'
  if (!isUsable(pool, member, states)) return 'DOWN'
  if (member.weight === 0) return 'DRAIN'
  return pool.monitor === null ? 'NO_CHECK' : 'UP'
}
