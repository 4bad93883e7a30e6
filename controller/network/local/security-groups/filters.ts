/** A rule of a security group. It allows; what no rule allows is dropped. */
export type Rule = {
  direction: 'ingress' | 'egress'
  version: 4 | 6
  /** Its number in IP; null is any. */
  protocol: number | null
  /** Ports, or type and code in ICMP; null is any. */
  min: number | null
  max: number | null
  /** The other side; null is anybody. */
  remote: { cidr: string } | { groupId: string } | null
}

export type SecurityGroup = {
  id: string
  rules: readonly Rule[]
  /** Addresses and CIDRs of the ports that have the group, for rules that name it as the other side. */
  members: readonly string[]
}

/** Which groups say what a port may send and receive. */
export type Filter = {
  portId: string
  networkId: string
  /** Null: all traffic of the port. Else only that from and to these VIPs, which the port may hold. */
  vips: readonly string[] | null
  groupIds: readonly string[]
  /** Whether answers pass whatever the rules say. */
  stateful: boolean
}

/** Whose share of the tracked connections a port's traffic counts against, on a network that has filters. */
export type PortShare = { portId: string; projectId: string; isRouterLeg: boolean }

export type Filters = {
  filters: readonly Filter[]
  /** Every group that a filter or a rule of such a group names. */
  groups: readonly SecurityGroup[]
  shares: readonly PortShare[]
}

export const networksOf = ({ filters }: Filters): string[] => [...new Set(filters.map(({ networkId }) => networkId))]
