import type { AmphoraDrain } from '../../../../amphora-agent/protocol/handover.js'
import type { MachineLimits } from '../../../load-balancer/tree/capacity.js'
import type { Port, Subnet } from '../../../network/driver.js'
import type { Role } from './topology.js'

export type AmphoraStatus = 'BOOTING' | 'READY' | 'ALLOCATED' | 'ERROR' | 'PENDING_DELETE'

/** One amphora as its row says. */
export type AmphoraRow = {
  id: string
  status: AmphoraStatus
  role: Role | null
  /** Address on the management network; null before its first machine. */
  managementAddress: string | null
  appliedGeneration: number
  appliedSha256: string | null
  /** Seconds since its last sign of life: a heartbeat, an answer, or being made. */
  silentSeconds: number
  /** Seconds since its last heartbeat; null when there was none. */
  heardSeconds: number | null
  /** How long its agent has been out of reach while it was heard without a gap; 0 when it was reached last time. */
  unreachableSeconds: number
  /** For how long something has been amiss on it that it cannot repair; 0 when nothing is. */
  mismatchedSeconds: number
  /** It was heard since its last apply, and asks for its configuration. */
  needsApply: boolean
  /** A failover asked for another one in its place. */
  replacing: boolean
  /** It had the VIP when it was last asked, or by its last heartbeat. Of a pair, whichever role it has. */
  heldVip: boolean
}

export type ObservedAgent =
  | {
      state: 'answers'
      haproxyVersion: string
      appliedGeneration: number
      appliedSha256: string | null
      /** An older agent does not tell. */
      holdsVip?: boolean | undefined
      /** An older agent does not tell. */
      limits?: MachineLimits | undefined
      /** Null unless it was told to accept nothing any more. */
      drain: AmphoraDrain | null
      /** For how long there may still be requests to members that left, of any pool. An older agent does not tell. */
      leavingSeconds?: number | undefined
    }
  | { state: 'unreachable' }

/** One amphora as it was found: its row, machine, ports and agent. */
export type ObservedAmphora = AmphoraRow & {
  machine: 'running' | 'stopped' | 'absent'
  /** Its ports on other networks than the management network. */
  ports: readonly Port[]
  /** Ids of those that the running machine has an interface for, which may send from all of their addresses. */
  plugged: readonly string[]
  /** Unreachable as well when the machine does not run. */
  agent: ObservedAgent
  /** Whether it serves, as its host sees it; asked for when the agent cannot be reached. Null when nobody can tell. */
  serves: boolean | null
}

/** All that the plan for a load balancer looks at, beside the tree. */
export type Observed = {
  amphorae: readonly ObservedAmphora[]
  vipPort: Port | null
  /** Those of the VIP, of the members and of the amphorae's ports that still exist. */
  subnets: readonly Subnet[]
  /** MTU by network id. */
  mtus: ReadonlyMap<string, number>
}
