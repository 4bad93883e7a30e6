import type { OldWorkerLimits } from '../../../../amphora-agent/protocol/desired.js'
import type { MachineLimits } from '../../../load-balancer/tree/capacity.js'
import type { Port, Subnet } from '../../../network/driver.js'

/** What the operator sets for every HAProxy. */
export type HaproxySettings = {
  /** For workers that have only their connections left. */
  oldWorkers: OldWorkerLimits
  /** A line for each request, or connection of TCP; else only for those that end in an error. */
  logRequests: boolean
}

/** What rendering must know of one amphora beside the tree of its load balancer. */
export type AmphoraFacts = HaproxySettings & {
  amphoraId: string
  /** The fence of the worker's claim; travels with the desired state. */
  fence: number
  /** As the agent's hello reports it, such as `2.6.12-1+deb12u4`. */
  haproxyVersion: string
  /** Of its machine: connections and checks must fit. */
  limits: MachineLimits
  /** The plugged interfaces, the management interface left out; exactly one of them is on the VIP's subnet. */
  interfaces: readonly PluggedInterface[]
  /** Null for a single amphora, which holds the VIP itself. */
  pair: PairFacts | null
  /** It serves, but another one holds the VIP for now: while one amphora takes another's place. */
  standsBy?: boolean
}

export type PluggedInterface = {
  purpose: 'vip' | 'member'
  port: Port
  /** The subnets of the port's fixed addresses. */
  subnets: readonly Subnet[]
  /** Of the port's network. */
  mtu: number
}

export type PairFacts = {
  /** VRRP priority, 1..254. */
  priority: number
  /** Own address on the VIP's subnet, from which VRRP speaks. */
  vrrpAddress: string
  /** The other amphorae; at least one, for without any keepalived would fall back to multicast into the tenant's network. */
  peers: readonly { amphoraId: string; address: string }[]
}
