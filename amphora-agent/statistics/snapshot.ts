import { inMaintenance, isDraining, type ServerState } from '../haproxy/runtime/servers-state.js'
import type { ProxyRow } from '../haproxy/runtime/stat.js'
import type { Desired } from '../protocol/desired.js'
import type { Counters, ListenerState, MemberState, PoolState, Report } from '../protocol/heartbeat.js'

/** The state and counters of all objects of the table at one moment, in the table's order. */
export type Snapshot = {
  listeners: { state: ListenerState; counters: Counters }[]
  pools: { state: PoolState; counters: Counters; members: MemberState[] }[]
}

/** What the current worker reports; both empty while HAProxy does not run. */
export type Observation = { proxies: readonly ProxyRow[]; servers: readonly ServerState[] }

export function takeSnapshot(
  desired: Desired,
  { proxies, servers }: Observation,
  totalOf: (name: string) => Counters,
): Snapshot {
  const rows = new Map(proxies.map(row => [row.name, row]))
  const states = new Map<string, ServerState>(servers.map(state => [`${state.backend}/${state.name}`, state]))
  const unchecked = new Set(
    (desired.haproxy?.backends ?? []).flatMap(backend =>
      backend.servers
        .filter(({ options }) => !options.some(word => ['check', 'agent-check', 'track'].includes(word)))
        .map(({ name }) => `${backend.name}/${name}`),
    ),
  )
  return {
    listeners: desired.objects.listeners.map(id => ({
      state: listenerState(rows.get(id)?.status),
      counters: totalOf(id),
    })),
    pools: desired.objects.pools.map(({ poolId, listenerId, members }) => {
      const name = `${poolId}:${listenerId}`
      return {
        state: rows.get(name)?.status.startsWith('UP') ? 'UP' : 'DOWN',
        counters: totalOf(name),
        members: members.map(id => memberState(states.get(`${name}/${id}`), unchecked.has(`${name}/${id}`))),
      }
    }),
  }
}

/** The objects that changed since the last report: in their states, or in anything. */
export function changedSince(
  sent: Snapshot | null,
  now: Snapshot,
  what: 'states' | 'anything',
): Pick<Report, 'listeners' | 'pools'> {
  const visible = (object: { state: string; members?: MemberState[] } | undefined) =>
    what === 'anything' ? JSON.stringify(object) : JSON.stringify([object?.state, object?.members])
  return {
    listeners: now.listeners
      .map((listener, index) => ({ index, ...listener }))
      .filter(({ index }) => visible(now.listeners[index]) !== visible(sent?.listeners[index])),
    pools: now.pools
      .map((pool, index) => ({ index, firstMember: 0, ...pool }))
      .filter(({ index }) => visible(now.pools[index]) !== visible(sent?.pools[index])),
  }
}

function listenerState(status: string | undefined): ListenerState {
  if (status === 'FULL') return 'FULL'
  return status === 'OPEN' ? 'OPEN' : 'DOWN'
}

function memberState(state: ServerState | undefined, unchecked: boolean): MemberState {
  if (state === undefined) return 'UNKNOWN'
  if (inMaintenance(state)) return 'MAINT'
  if (!unchecked && state.operational === 'stopped') return 'DOWN'
  if (isDraining(state)) return 'DRAIN'
  return unchecked ? 'NO_CHECK' : 'UP'
}
