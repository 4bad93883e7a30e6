import type { AmphoraDrain } from '../../../../amphora-agent/protocol/handover.js'
import type { HeldCredential } from '../../../../amphora-agent/protocol/key-manager/credential.js'
import type { MissingMaterial } from '../../../../amphora-agent/protocol/messages.js'
import type { PluggedPort } from '../../../compute/driver.js'
import type { MachineLimits } from '../../../load-balancer/tree/capacity.js'
import type { Port, Subnet } from '../../../network/driver.js'
import type { Role } from './topology.js'

export type AmphoraStatus = 'BOOTING' | 'READY' | 'ALLOCATED' | 'ERROR' | 'PENDING_DELETE'

/** The database row of one amphora. */
export type AmphoraRow = {
  id: string
  status: AmphoraStatus
  role: Role | null
  /** Address on the management network; null before its first machine is created. */
  managementAddress: string | null
  appliedGeneration: number
  appliedSha256: string | null
  /** Seconds since its last heartbeat, row update or creation, whichever is latest. */
  silentSeconds: number
  /** Seconds since its last heartbeat; null if there was none. */
  heardSeconds: number | null
  /** Seconds for which its agent has been unreachable despite gapless heartbeats; 0 if the last attempt reached it. */
  unreachableSeconds: number
  /** Seconds for which it has reported mismatches that it cannot repair; 0 if there are none. */
  mismatchedSeconds: number
  /** Since its last apply, a heartbeat has asked for the configuration. */
  needsApply: boolean
  /** Marked for replacement. */
  replacing: boolean
  /** Hash of the agent that it should get in place; null unless one is wanted. */
  upgradeTo: string | null
  /** Hash of the agent with which the latest upgrade failed. */
  upgradeFailed: string | null
  /** It held the VIP at the last probe or heartbeat. In a pair, this is independent of its role. */
  heldVip: boolean
}

export type ObservedAgent =
  | {
      state: 'answers'
      /** Undefined from a noop amphora. */
      agentVersion?: string | undefined
      /** Hash of its file. Undefined from an older agent, which cannot be upgraded in place. */
      bundle?: string | undefined
      haproxyVersion: string
      appliedGeneration: number
      appliedSha256: string | null
      /** Undefined from an older agent. */
      holdsVip?: boolean | undefined
      /** Undefined from an older agent. */
      limits?: MachineLimits | undefined
      /** Null unless it was told to stop accepting connections. */
      drain: AmphoraDrain | null
      /** Seconds for which requests to removed members, of any pool, may still run. Undefined from an older agent. */
      leavingSeconds?: number | undefined
      /** Undefined from an older agent. */
      answersMetrics?: boolean | undefined
      /** Undefined from an older agent. */
      balancesDatagrams?: boolean | undefined
      /** What it could not read from the key manager. Undefined from an older agent, which reads nothing. */
      missing?: readonly MissingMaterial[] | undefined
      /** The credential that it was lent. Undefined from an older agent, which takes none. */
      credential?: HeldCredential | null | undefined
    }
  | { state: 'unreachable' }
  /** It speaks a protocol that this controller does not; `text` says so. */
  | { state: 'incompatible'; is: 'too-old' | 'too-new'; text: string }

/** An amphora as observed: its row, machine, ports and agent. */
export type ObservedAmphora = AmphoraRow & {
  machine: 'running' | 'stopped' | 'absent'
  /** Its ports, except the management port. */
  ports: readonly Port[]
  /** Ids of ports with an interface in the running machine that may send from all addresses of the port. */
  plugged: readonly string[]
  /** The interfaces of plugged ports. */
  interfaces: readonly Pick<PluggedPort, 'id' | 'macAddress'>[]
  /** `unreachable` if the machine is not running. */
  agent: ObservedAgent
  /** How long its agent may be silent before its first configuration, if its machine is of a kind that starts slowly. */
  patienceSeconds: number
  /** Whether it can be taken from its networks although its agent does not answer. */
  canBeCutOff: boolean
  /** Whether it serves according to its host, inspected only if the agent does not answer. Null if unknown. */
  serves: boolean | null
}

/** Everything that the plan for a load balancer depends on, besides the tree. */
export type Observed = {
  amphorae: readonly ObservedAmphora[]
  vipPort: Port | null
  /** The existing subnets of the VIP, the members and the amphorae's ports. */
  subnets: readonly Subnet[]
  /** MTU by network id. */
  mtus: ReadonlyMap<string, number>
}
