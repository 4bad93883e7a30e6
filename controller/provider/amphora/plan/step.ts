import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { Handover } from '../../../../amphora-agent/protocol/handover.js'
import type { DesiredPort } from './desired-ports.js'
import type { Role } from './topology.js'

/** One act that brings a load balancer nearer to its desired state. Every act may be repeated. */
export type Step =
  | { kind: 'ensure-vip-port' }
  | { kind: 'release-vip-port' }
  /** A warm amphora when there is one, else the row of a new one. */
  | { kind: 'allocate-amphora'; role: Role }
  | { kind: 'create-machine'; amphoraId: string }
  /** For a machine that runs but is neither heard nor reached, and does not serve. */
  | { kind: 'restart-machine'; amphoraId: string }
  /** Marks one that is heard but cannot be reached: another takes its place, as in a failover that was asked for. */
  | { kind: 'replace-amphora'; amphoraId: string }
  /** A port that is attached gets what it lacks: an address on another subnet, or its interface. */
  | { kind: 'attach-port'; amphoraId: string; port: DesiredPort }
  | { kind: 'await-agent'; amphoraId: string }
  | { kind: 'apply'; amphoraId: string; desired: Desired }
  /** Both learn how packets find the amphora that has their connection, before the VIP moves from one to the other. */
  | { kind: 'begin-handover'; parts: readonly { amphoraId: string; handover: Handover }[] }
  /** It is on its way out, and gives the VIP up by itself. */
  | { kind: 'demote-amphora'; amphoraId: string; standingBy: Desired }
  /** By VRRP, which takes a moment. */
  | { kind: 'await-vip'; amphoraId: string; vips: readonly string[] }
  /** It accepts nothing any more; what is under way has so many seconds to end. */
  | { kind: 'drain-amphora'; amphoraId: string; seconds: number; waitSeconds: number }
  /** It is on its way out, and loses the interface of the VIP. */
  | { kind: 'silence-amphora'; amphoraId: string; portId: string | null }
  /** Requests to members that left get a moment to end, before the interface goes that leads to them. */
  | { kind: 'await-leaving'; amphoraId: string }
  /** Something ends by itself soon. */
  | { kind: 'observe-again'; seconds: number }
  /** Neighbours learn again where the VIP is. */
  | { kind: 'announce-vip'; amphoraId: string }
  | { kind: 'detach-port'; amphoraId: string; portId: string }
  /** A port gives up its addresses on subnets that no member needs any more. */
  | { kind: 'shrink-port'; amphoraId: string; portId: string; subnetIds: readonly string[] }
  | { kind: 'delete-machine'; amphoraId: string }
  | { kind: 'delete-ports'; amphoraId: string }
  | { kind: 'delete-amphora-row'; amphoraId: string }

/** The steps of a stage are independent of each other; a stage begins when the one before it has succeeded. */
export type Plan = {
  stages: readonly (readonly Step[])[]
  /** When all of it succeeds, the desired state is reached; otherwise the world has to be observed again. */
  settles: boolean
}
