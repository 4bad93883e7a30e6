import type { Caller } from '../identity/caller.js'

/** A Networking port, with what the load balancer service needs of it. */
export type Port = {
  id: string
  networkId: string
  projectId: string
  name: string
  macAddress: string
  deviceId: string
  deviceOwner: string
  fixedIps: { subnetId: string; address: string }[]
  /** Addresses the port may send from besides its own: VIPs that move between amphorae. */
  allowedAddresses: string[]
  /** The security groups that filter it; without any, it is open. */
  securityGroups: string[]
}

/** All addresses a port may send from. */
export const addressesOf = ({ fixedIps, allowedAddresses }: Port): string[] => [
  ...fixedIps.map(({ address }) => address),
  ...allowedAddresses,
]

export type Subnet = {
  id: string
  networkId: string
  projectId: string
  ipVersion: 4 | 6
  cidr: string
  gatewayIp: string | null
  hostRoutes: { destination: string; nexthop: string }[]
  /** Its CIDR or a host route (not a default route) overlaps the management network: amphorae cannot be on it. */
  overlapsManagement: boolean
}

export const managementOverlap = (subnetId: string): string =>
  `The CIDR or a host route of subnet ${subnetId} overlaps the management network of the load balancer service.`

export type Network = {
  id: string
  projectId: string
  shared: boolean
  mtu: number
  subnetIds: string[]
  /** Whether it leads to a physical network. */
  isPhysical: boolean
}

/** What an address on a network does when it is asked for an echo. `unknown`: asking failed. */
export type Answer = 'answers' | 'silent' | 'unknown'

/** By address. */
export type Answers = ReadonlyMap<string, Answer>

/** An address that a request expects a port to have; null leaves a part open. */
export type ExpectedIp = { subnetId: string | null; address: string | null }

export type PortRequest = {
  networkId: string
  /** The driver picks the address where none is given. */
  fixedIps: { subnetId: string; address?: string }[]
  projectId: string
  name: string
  /** deviceId, deviceOwner and name identify the port: a request with the same three returns the same port. */
  deviceId: string
  deviceOwner: string
  /** Addresses of other ports that this port may also send from. Default: none. */
  allowedAddresses?: readonly string[]
}

/**
 * Supplies addresses and ports. Look-ups that take a caller return null for objects the caller may not see, such as
 * another project's. All other operations act with the service's own rights. `expected` is what the request says of
 * the object. Only a driver that knows no objects reads it, because with that every request is consistent.
 */
export type NetworkDriver = {
  name: string
  /** Whether traffic on its networks can reach this host. */
  reachesHost: boolean
  findNetwork: (caller: Caller, id: string) => Promise<Network | null>
  /** @param expected an address on it */
  findSubnet: (caller: Caller, id: string, expected?: string | null) => Promise<Subnet | null>
  findPort: (caller: Caller, id: string, expected?: readonly ExpectedIp[]) => Promise<Port | null>
  /** Null if the driver has no security groups. */
  findSecurityGroup: ((caller: Caller, id: string) => Promise<{ id: string } | null>) | null
  /** Null if the driver has no QoS policies. */
  findQosPolicy: ((caller: Caller, id: string) => Promise<{ id: string } | null>) | null

  network: (id: string) => Promise<Network | null>
  subnets: (ids: readonly string[]) => Promise<Subnet[]>
  /**
   * The subnet on which a project reaches an address: on a network of its own, or a shared one. Never the management
   * network.
   */
  subnetOf: (projectId: string, address: string) => Promise<Subnet | null>
  /** The number of free addresses in a subnet for VIPs that request none. */
  freeAddresses: (subnetId: string) => Promise<number>
  port: (id: string) => Promise<Port | null>
  /**
   * Idempotent by (deviceId, deviceOwner, name). An existing port gains an address on each requested subnet where it
   * has none.
   * @throws AddressTaken if a requested address is in use, NoAddressLeft if the subnet is full or the project has used
   *   up its share, InvalidPortRequest if the network or a subnet does not exist or an address is not a host address
   */
  ensurePort: (request: PortRequest) => Promise<Port>
  /**
   * Sets the device fields of a user's port to mark it as in use; null clears them.
   * @throws AddressTaken if another device uses the port, InvalidPortRequest if it does not exist
   */
  bindPort: (id: string, device: { deviceId: string; deviceOwner: string } | null) => Promise<void>
  /**
   * Replaces the security groups that filter a port; without any, it is open.
   * @throws InvalidPortRequest if the port or a group does not exist, or the port has no port security
   */
  setSecurityGroups: (portId: string, groupIds: readonly string[]) => Promise<void>
  /** Removes the addresses on these subnets from a port made by ensurePort. No error if it has none there. */
  releaseAddresses: (portId: string, subnetIds: readonly string[]) => Promise<void>
  /** No error if the port does not exist. */
  deletePort: (id: string) => Promise<void>
  /** Ports that ensurePort made for this device owner more than `olderThanSeconds` ago. For the sweep of orphans. */
  portsOwnedBy: (deviceOwner: string, olderThanSeconds: number) => Promise<Port[]>
  /** Users' ports that bindPort marked with this owner and that are unchanged for so long. The sweep unbinds them. */
  boundPorts: (deviceOwner: string, olderThanSeconds: number) => Promise<Port[]>
  /** All ports that ensurePort made for one device, whatever their device owner and name. */
  portsOf: (deviceId: string) => Promise<Port[]>
  /** The network between controllers and amphorae. */
  managementNetwork: () => Promise<{ network: Network; subnet: Subnet; controllerAddress: string }>
}

export class AddressTaken extends Error {}
export class NoAddressLeft extends Error {}
/** The subnet may have free addresses, but the project holds its share. */
export class ShareExhausted extends NoAddressLeft {}
export class InvalidPortRequest extends Error {}

/** device_owner of the ports of routers and floating IPs. */
export const ROUTER_PORT_OWNER = {
  interface: 'network:router_interface',
  gateway: 'network:router_gateway',
  floatingIp: 'network:floatingip',
} as const

export const ROUTER_PORT_OWNERS: readonly string[] = Object.values(ROUTER_PORT_OWNER)

/** device_owner of the ports of Krater's services. */
export const PORT_OWNER = {
  vip: 'Octavia',
  amphora: 'Octavia:amphora',
  management: 'Octavia:management',
  visitor: 'krater:visitor',
  /** Where the balancer router of a network in OVN is. */
  balancer: 'krater:balancer',
  /** From which OVN probes members on a subnet, named as OVN's Octavia driver does. */
  probe: 'ovn-lb-hm:distributed',
  /** Of the ports that `krater network attach` makes, by the API. */
  attachment: 'krater:attachment',
} as const

/** Owners of ports that Krater's services make for themselves on tenants' networks. */
const HIDDEN_PORT_OWNERS: ReadonlySet<string> = new Set([PORT_OWNER.balancer, PORT_OWNER.probe, PORT_OWNER.visitor])

/** Whether nobody but a service of Krater's decides anything of such a port. */
export const isHiddenOwner = (deviceOwner: string): boolean => HIDDEN_PORT_OWNERS.has(deviceOwner)
