import type { DatagramStates } from '../datagrams/states.js'
import { inMaintenance, isDraining, type ServerState } from '../haproxy/runtime/servers-state.js'
import type { ProxyRow } from '../haproxy/runtime/stat.js'
import type { FailedCheck } from '../protocol/checks.js'
import type { Desired } from '../protocol/desired.js'
import type { Counters, ListenerState, MemberState, PoolState, Report } from '../protocol/heartbeat.js'

/** The state and counters of all objects of the table at one moment, in the table's order. */
export type Snapshot = {
  listeners: { state: ListenerState; counters: Counters }[]
  pools: { state: PoolState; counters: Counters; members: MemberState[]; checks: PoolCheck[] }[]
}

/** A failed check, and the positions of the members whose last check it is. */
type PoolCheck = { check: FailedCheck; members: number[] }

/** What HAProxy's current worker reports, nothing while it does not run, and the states of UDP and SCTP listeners. */
export type Observation = {
  proxies: readonly ProxyRow[]
  servers: readonly ServerState[]
  /** By path. */
  failedChecks: ReadonlyMap<string, FailedCheck>
  datagrams: DatagramStates
}

export function takeSnapshot(
  desired: Desired,
  { proxies, servers, failedChecks, datagrams }: Observation,
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
      state: datagrams.listeners.get(id) ?? listenerState(rows.get(id)?.status),
      counters: totalOf(id),
    })),
    pools: desired.objects.pools.map(({ poolId, listenerId, members }) => {
      const name = `${poolId}:${listenerId}`
      const pool = datagrams.pools.get(poolId)
      if (pool !== undefined) return datagramPool(pool, members, totalOf(name))
      const memberStates = members.map(id => memberState(states.get(`${name}/${id}`), unchecked.has(`${name}/${id}`)))
      const checks = members.map((id, i) =>
        memberStates[i] === 'DOWN' ? failedChecks.get(`${name}/${id}`) : undefined,
      )
      return {
        state: rows.get(name)?.status.startsWith('UP') ? 'UP' : 'DOWN',
        counters: totalOf(name),
        members: memberStates,
        checks: grouped(checks),
      }
    }),
  }
}

function datagramPool(
  { state, members: known }: NonNullable<ReturnType<DatagramStates['pools']['get']>>,
  members: readonly string[],
  counters: Counters,
): Snapshot['pools'][number] {
  const reported = members.map(id => known.get(id))
  return {
    state,
    counters,
    members: reported.map(member => member?.state ?? 'UNKNOWN'),
    checks: grouped(reported.map(member => member?.check ?? undefined)),
  }
}

/** The objects that changed since the last report: in their states, or in anything. */
export function changedSince(
  sent: Snapshot | null,
  now: Snapshot,
  what: 'states' | 'anything',
): Pick<Report, 'listeners' | 'pools' | 'checks'> {
  const visible = (object: { state: string; members?: MemberState[]; checks?: PoolCheck[] } | undefined) =>
    what === 'anything' ? JSON.stringify(object) : JSON.stringify([object?.state, object?.members, object?.checks])
  const pools = now.pools
    .map((pool, index) => ({ index, ...pool }))
    .filter(({ index }) => visible(now.pools[index]) !== visible(sent?.pools[index]))
  return {
    listeners: now.listeners
      .map((listener, index) => ({ index, ...listener }))
      .filter(({ index }) => visible(now.listeners[index]) !== visible(sent?.listeners[index])),
    pools: pools.map(({ checks: _, ...pool }) => ({ firstMember: 0, ...pool })),
    checks: pools.flatMap(({ index, checks }) => checks.map(check => ({ pool: index, ...check }))),
  }
}

/** Members often share a cause: thousands of them then cost two bytes each. */
function grouped(checks: readonly (FailedCheck | undefined)[]): PoolCheck[] {
  const groups = new Map<string, PoolCheck>()
  for (const [position, check] of checks.entries()) {
    if (check === undefined) continue
    const key = `${check.status} ${check.code} ${check.words}`
    const group = groups.get(key) ?? { check, members: [] }
    group.members.push(position)
    groups.set(key, group)
  }
  return [...groups.values()]
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
