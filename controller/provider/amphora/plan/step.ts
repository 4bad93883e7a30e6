import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { Handover } from '../../../../amphora-agent/protocol/handover.js'
import type { DesiredPort } from './desired-ports.js'
import type { Role } from './topology.js'

/** One action towards a load balancer's desired state. Every step is safe to repeat. */
export type Step =
  | { kind: 'ensure-vip-port' }
  /** Gives the port of the VIP the load balancer's security groups. */
  | { kind: 'filter-vip-port'; portId: string }
  | { kind: 'release-vip-port' }
  /** Adopts a warm amphora if there is one, else inserts a new row. */
  | { kind: 'allocate-amphora'; role: Role }
  | { kind: 'create-machine'; amphoraId: string }
  /** For a running machine that sends no heartbeats, cannot be reached and does not serve. */
  | { kind: 'restart-machine'; amphoraId: string }
  /** Marks an amphora for replacement, as a requested failover does. */
  | { kind: 'replace-amphora'; amphoraId: string }
  /** Attaches a port; adds to one already attached what is missing, an address or its interface. */
  | { kind: 'attach-port'; amphoraId: string; port: DesiredPort }
  | { kind: 'await-agent'; amphoraId: string }
  /** Gives a running amphora this controller's agent, without a change of what it serves. */
  | { kind: 'upgrade-agent'; amphoraId: string }
  /** `mustBeWhole`: fails if the amphora misses TLS material. */
  | { kind: 'apply'; amphoraId: string; desired: Desired; mustBeWhole?: boolean }
  /** Before the VIP moves, tells both amphorae how packets find the one with their connection. */
  | { kind: 'begin-handover'; parts: readonly { amphoraId: string; handover: Handover }[] }
  /** The amphora is leaving and gives up the VIP itself. */
  | { kind: 'demote-amphora'; amphoraId: string; standby: Desired }
  /** Waits for VRRP to move the VIP. */
  | { kind: 'await-vip'; amphoraId: string; vips: readonly string[] }
  /** Stops accepting connections; existing ones have `seconds` to end. */
  | { kind: 'drain-amphora'; amphoraId: string; seconds: number; waitSeconds: number }
  /** The amphora is leaving and loses its VIP interface. */
  | { kind: 'silence-amphora'; amphoraId: string; portId: string | null }
  /** Waits briefly for requests to removed members before the interface to them is removed. */
  | { kind: 'await-leaving'; amphoraId: string }
  /** Schedules a recheck, because something will end by itself. */
  | { kind: 'observe-again'; seconds: number }
  /** Announces the VIP to its neighbours again. */
  | { kind: 'announce-vip'; amphoraId: string }
  | { kind: 'detach-port'; amphoraId: string; portId: string }
  /** Removes a port's addresses on subnets that no member needs. */
  | { kind: 'shrink-port'; amphoraId: string; portId: string; subnetIds: readonly string[] }
  | { kind: 'delete-machine'; amphoraId: string }
  | { kind: 'delete-ports'; amphoraId: string }
  | { kind: 'delete-amphora-row'; amphoraId: string }

/** Steps within a stage are independent. A stage starts once the previous one has succeeded. */
export type Plan = {
  stages: readonly (readonly Step[])[]
  /** True if success of all steps reaches the desired state; false if another observation must follow. */
  settles: boolean
}
