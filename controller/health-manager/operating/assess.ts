import type { MemberState } from '../../../amphora-agent/protocol/heartbeat.js'
import type { OperatingStatus } from '../../load-balancer/schema/status.js'
import type { Impairment } from './impairment.js'
import type { Reported } from './picture.js'

export type StoredObject = { id: string; operatingStatus: OperatingStatus; reason: string | null }

export type StoredMember = StoredObject & { adminStateUp: boolean; address: string; protocolPort: number }

/** A load balancer's objects from the database, with their previous operating statuses. */
export type Stored = StoredObject & {
  /** Operating status before the impairment is applied. */
  reportedStatus: OperatingStatus
  impairment: Impairment | null
  adminStateUp: boolean
  /** True if no change is in progress, so that an object missing from a report is really missing. */
  settled: boolean
  listeners: (StoredObject & { adminStateUp: boolean })[]
  pools: (StoredObject & { adminStateUp: boolean; members: StoredMember[] })[]
}

export type Assessment = {
  loadBalancer: OperatingStatus
  listeners: Map<string, OperatingStatus>
  pools: Map<string, OperatingStatus>
  members: Map<string, OperatingStatus>
}

/**
 * Maps reports to operating statuses. A listener's status does not depend on its pools. A load balancer gets the worst
 * status of all: ERROR, then DEGRADED, then ONLINE.
 */
export function assess(stored: Stored, reported: Reported): Assessment {
  const assessment: Assessment = {
    loadBalancer: stored.adminStateUp ? 'ONLINE' : 'OFFLINE',
    listeners: new Map(),
    pools: new Map(),
    members: new Map(),
  }
  const worsen = (status: 'DEGRADED' | 'ERROR') => {
    if (!stored.adminStateUp || assessment.loadBalancer === 'ERROR') return
    assessment.loadBalancer = status
  }
  for (const listener of stored.listeners) {
    const state = reported.listeners.get(listener.id)
    if (state === 'OPEN') assessment.listeners.set(listener.id, 'ONLINE')
    else if (state === 'FULL') {
      assessment.listeners.set(listener.id, 'DEGRADED')
      worsen('DEGRADED')
    } else {
      const lost = stored.adminStateUp && listener.adminStateUp && stored.settled
      assessment.listeners.set(listener.id, lost ? 'ERROR' : 'OFFLINE')
      if (lost) worsen('ERROR')
    }
  }
  for (const pool of stored.pools) {
    const state = reported.pools.get(pool.id)
    let poolStatus: OperatingStatus = state === undefined ? 'OFFLINE' : state === 'UP' ? 'ONLINE' : 'ERROR'
    if (poolStatus === 'ERROR') worsen('ERROR')
    for (const member of pool.members) {
      const memberStatus = memberStatusOf(reported.members.get(member.id), member.operatingStatus)
      assessment.members.set(member.id, memberStatus)
      if (memberStatus === 'ERROR' && poolStatus === 'ONLINE') {
        poolStatus = 'DEGRADED'
        worsen('DEGRADED')
      }
    }
    assessment.pools.set(pool.id, poolStatus)
  }
  return assessment
}

function memberStatusOf(state: MemberState | undefined, before: OperatingStatus): OperatingStatus {
  switch (state) {
    case 'UP':
      return 'ONLINE'
    case 'DOWN':
      return 'ERROR'
    case 'DRAIN':
      return 'DRAINING'
    case 'MAINT':
      return 'OFFLINE'
    case 'NO_CHECK':
      return 'NO_MONITOR'
    case 'UNKNOWN':
      return before
    case undefined:
      return before === 'NO_MONITOR' ? 'NO_MONITOR' : 'OFFLINE'
  }
}
