import type { OldWorkerLimits } from '../../../../amphora-agent/protocol/desired.js'
import type { MachineLimits } from '../../../load-balancer/tree/capacity.js'
import type { Port, Subnet } from '../../../network/driver.js'

/** The operator's settings for every HAProxy. */
export type HaproxySettings = {
  /** For old workers, which only finish their connections. */
  oldWorkers: OldWorkerLimits
  /** True to log every request (for TCP, every connection), false to log only errors. */
  logRequests: boolean
}

/** What rendering needs to know about one amphora besides its load balancer's tree. */
export type AmphoraFacts = HaproxySettings & {
  amphoraId: string
  /** Fence of the worker's claim; part of the desired state. */
  fence: number
  /** From the agent's hello, such as `2.6.12-1+deb12u4`. */
  haproxyVersion: string
  /** Whether its agent serves HAProxy's metrics under Octavia's names. */
  answersMetrics: boolean
  /** Whether its agent reads TLS material and answers challenges. */
  readsMaterial: boolean
  /** Whether its agent balances UDP and SCTP. */
  balancesDatagrams: boolean
  /** Limits of its machine, which bound connections and checks. */
  limits: MachineLimits
  /** The plugged interfaces except the management interface. Exactly one has the purpose `vip`. */
  interfaces: readonly PluggedInterface[]
  /** Null for a single amphora, which holds the VIP itself. */
  pair: PairFacts | null
  /** During a replacement: it serves, but another amphora holds the VIP. */
  isStandby?: boolean
}

export type PluggedInterface = {
  purpose: 'vip' | 'member'
  port: Port
  /** Subnets of the port's fixed addresses. */
  subnets: readonly Subnet[]
  /** MTU of the port's network. */
  mtu: number
  /** Of the interface, if it is not the port's. */
  macAddress?: string | undefined
}

export type PairFacts = {
  /** VRRP priority, 1..254. */
  priority: number
  /** Own address on the VIP's subnet, the source of VRRP packets. */
  vrrpAddress: string
  /** The other amphorae, at least one: without a peer, keepalived would multicast into the tenant's network. */
  peers: readonly { amphoraId: string; address: string }[]
}
