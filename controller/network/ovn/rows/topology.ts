import type { AddressPair } from '../../local/source-guard.js'

/** What a network of Krater's own OVN is called where it leaves OVN: it has a bridge of its own, without VLAN tags. */
export const physicalNetworkOf = (networkId: string): string => `krater-${networkId}`

export type OvnSubnet = {
  id: string
  cidr: string
  ipVersion: 4 | 6
  gatewayIp: string | null
  enableDhcp: boolean
  ipv6AddressMode: string | null
  ipv6RaMode: string | null
  dnsNameservers: readonly string[]
  hostRoutes: readonly { destination: string; nexthop: string }[]
}

export type OvnNetwork = {
  id: string
  mtu: number
  /** What it leads to outside, and the tag of its frames there; null if it leads nowhere. */
  physical: { name: string; vlan: number | null } | null
  subnets: readonly OvnSubnet[]
  /** The host's own interface on it: what it is called, and its addresses. */
  hostLeg: { name: string; macAddress: string; addresses: readonly string[] } | null
  /** Whether machines on it reach the host's interface alone. */
  isolated: boolean
}

export type OvnPort = {
  id: string
  networkId: string
  macAddress: string
  addresses: readonly { address: string; subnetId: string }[]
  /** VIPs that it may hold besides its own addresses. */
  allowedAddresses: readonly string[]
  pairs: readonly AddressPair[]
  /** Without port security. */
  isOpen: boolean
  adminStateUp: boolean
  /** `balancer`: where the balancer router is. */
  role: 'machine' | 'balancer'
}
