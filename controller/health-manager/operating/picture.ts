import type { FailedCheck } from '../../../amphora-agent/protocol/checks.js'
import type { ObjectTable } from '../../../amphora-agent/protocol/desired.js'
import type {
  Counters,
  ListenerState,
  MemberState,
  PoolState,
  Report,
} from '../../../amphora-agent/protocol/heartbeat.js'

/** What one amphora reports about its objects, assembled from the fragments received. */
export type Picture = {
  configHash: string
  epoch: string
  sentMs: number
  listeners: Map<number, { state: ListenerState; counters: Counters }>
  pools: Map<number, { state: PoolState; counters: Counters; members: (MemberState | undefined)[] }>
  /** Why members are down: by pool, then by position. */
  checks: Map<number, Map<number, FailedCheck>>
  /** Members of all pools. */
  memberCount: number
}

const emptyPicture = ({ configHash, epoch }: Report): Picture => ({
  configHash,
  epoch,
  sentMs: 0,
  listeners: new Map(),
  pools: new Map(),
  checks: new Map(),
  memberCount: 0,
})

/** Far above any real configuration. Bounds the memory that a compromised amphora can use up. */
const MAX_OBJECTS = 10_000
const MAX_MEMBERS = 200_000

/** Adds a report to the picture. A report of another configuration starts a new one, because its numbering differs. */
export function addReport(picture: Picture | undefined, report: Report): Picture {
  const base = picture !== undefined && picture.configHash === report.configHash ? picture : emptyPicture(report)
  base.epoch = report.epoch
  base.sentMs = Math.max(base.sentMs, report.sentMs)
  for (const { index, state, counters } of report.listeners) {
    if (index < MAX_OBJECTS) base.listeners.set(index, { state, counters })
  }
  for (const { index, state, counters, firstMember, members } of report.pools) {
    const known = base.pools.get(index)?.members ?? []
    const growth = Math.max(0, firstMember + members.length - known.length)
    if (index >= MAX_OBJECTS || base.memberCount + growth > MAX_MEMBERS) continue
    base.memberCount += growth
    for (const [offset, member] of members.entries()) {
      known[firstMember + offset] = member
      if (member !== 'DOWN') base.checks.get(index)?.delete(firstMember + offset)
    }
    base.pools.set(index, { state, counters, members: known })
  }
  for (const { pool, check, members } of report.checks) addCheck(base, pool, check, members)
  return base
}

/** Kept for known members only, which are bounded. A check may come before the state, but hardly before the pool. */
function addCheck({ pools, checks }: Picture, pool: number, check: FailedCheck, members: readonly number[]): void {
  const known = pools.get(pool)?.members.length ?? 0
  const ofPool = checks.get(pool) ?? new Map<number, FailedCheck>()
  for (const position of members) if (position < known) ofPool.set(position, check)
  if (ofPool.size > 0) checks.set(pool, ofPool)
}

/** Reported states by object id. A pool or member of several listeners gets the worst of its states. */
export type Reported = {
  listeners: Map<string, ListenerState>
  pools: Map<string, PoolState>
  members: Map<string, MemberState>
  /** Why members are down. */
  failedChecks: Map<string, FailedCheck>
}

/** @returns null until every object in the table has been reported */
export function readPicture(picture: Picture, table: ObjectTable): Reported | null {
  const reported: Reported = {
    listeners: new Map(),
    pools: new Map(),
    members: new Map(),
    failedChecks: new Map(),
  }
  for (const [index, id] of table.listeners.entries()) {
    const listener = picture.listeners.get(index)
    if (listener === undefined) return null
    reported.listeners.set(id, listener.state)
  }
  for (const [index, { poolId, members }] of table.pools.entries()) {
    const pool = picture.pools.get(index)
    if (pool === undefined) return null
    if (reported.pools.get(poolId) !== 'DOWN') reported.pools.set(poolId, pool.state)
    for (const [position, id] of members.entries()) {
      const state = pool.members[position]
      if (state === undefined) return null
      const before = reported.members.get(id)
      reported.members.set(id, before === undefined ? state : worse(before, state))
      const check = picture.checks.get(index)?.get(position)
      if (check !== undefined && state === 'DOWN' && !reported.failedChecks.has(id))
        reported.failedChecks.set(id, check)
    }
  }
  return reported
}

const WORST_FIRST: readonly MemberState[] = ['DOWN', 'MAINT', 'DRAIN', 'NO_CHECK', 'UP', 'UNKNOWN']

function worse(a: MemberState, b: MemberState): MemberState {
  return WORST_FIRST.indexOf(a) <= WORST_FIRST.indexOf(b) ? a : b
}
