import type { Caller } from '../identity/caller.js'

/** A Networking port as the load balancer service sees it. */
export type Port = {
  id: string
  networkId: string
  projectId: string
  name: string
  macAddress: string
  deviceId: string
  deviceOwner: string
  fixedIps: { subnetId: string; address: string }[]
  /** What the port may send from besides its own addresses: VIPs that move between amphorae. */
  allowedAddresses: string[]
}

/** All addresses that a port may send from. */
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
  /** Its addresses or a route of it (but a default route) overlap the management network: no amphora may stand on it. */
  overlapsManagement: boolean
}

export const managementOverlap = (subnetId: string): string =>
  `Subnet ${subnetId} overlaps the management network of the load balancer service, by its CIDR or one of its host routes.`

export type Network = { id: string; projectId: string; shared: boolean; mtu: number; subnetIds: string[] }

export type PortRequest = {
  networkId: string
  /** Where and, when it matters, which address; the driver chooses what is left open. */
  fixedIps: { subnetId: string; address?: string }[]
  projectId: string
  name: string
  /** With deviceOwner and name it identifies the port: asking again for the same three returns the same port. */
  deviceId: string
  deviceOwner: string
  /** Addresses of other ports from which this one may send too; none when not given. */
  allowedAddresses?: readonly string[]
}

/**
 * Where addresses and ports come from. The look-ups that take a caller see what that caller may see: another project's
 * object is null, as if it did not exist. The rest acts with the service's own rights.
 */
export type NetworkDriver = {
  name: string
  findNetwork: (caller: Caller, id: string) => Promise<Network | null>
  findSubnet: (caller: Caller, id: string) => Promise<Subnet | null>
  findPort: (caller: Caller, id: string) => Promise<Port | null>
  /** Null where there are no security groups. */
  findSecurityGroup: ((caller: Caller, id: string) => Promise<{ id: string } | null>) | null
  /** Null where no quality of service is offered. */
  findQosPolicy: ((caller: Caller, id: string) => Promise<{ id: string } | null>) | null

  network: (id: string) => Promise<Network | null>
  subnets: (ids: readonly string[]) => Promise<Subnet[]>
  /** How many addresses of a subnet may still be chosen for a VIP when none is asked for. */
  freeAddresses: (subnetId: string) => Promise<number>
  port: (id: string) => Promise<Port | null>
  /**
   * Idempotent by (deviceId, deviceOwner, name). A port that is there gets an address on each requested subnet on which it has none.
   * @throws AddressTaken when a requested address is in use, NoAddressLeft when the subnet is full or the project has
   *   its share, InvalidPortRequest when the network or a
   *   subnet does not exist, or the address is not one of its host addresses
   */
  ensurePort: (request: PortRequest) => Promise<Port>
  /**
   * Marks a port that the user made as used by us (device fields), or gives it back with null.
   * @throws AddressTaken when another device uses it, InvalidPortRequest when it does not exist
   */
  bindPort: (id: string, device: { deviceId: string; deviceOwner: string } | null) => Promise<void>
  /** Takes from a port that ensurePort made its addresses on these subnets. No error when there are none. */
  releaseAddresses: (portId: string, subnetIds: readonly string[]) => Promise<void>
  /** No error when it is gone already. */
  deletePort: (id: string) => Promise<void>
  /** Ports by owner kind, for the sweep of what nobody owns any more; only those older than `olderThanSeconds`. */
  portsOwnedBy: (deviceOwner: string, olderThanSeconds: number) => Promise<Port[]>
  /** Users' ports that bindPort marked with this owner kind, the last time so long ago: for the same sweep, which gives them back. */
  boundPorts: (deviceOwner: string, olderThanSeconds: number) => Promise<Port[]>
  /** The ports that ensurePort made for one device, whatever their owner kind and name. */
  portsOf: (deviceId: string) => Promise<Port[]>
  /** The network over which controllers and amphorae talk. */
  managementNetwork: () => Promise<{ network: Network; subnet: Subnet; controllerAddress: string }>
}

export class AddressTaken extends Error {}
export class NoAddressLeft extends Error {}
/** There are addresses, but the project has its share of them. */
export class ShareUsedUp extends NoAddressLeft {}
export class InvalidPortRequest extends Error {}

/** device_owner of the ports that the load balancer service makes. */
export const PORT_OWNER = {
  vip: 'Octavia',
  amphora: 'Octavia:amphora',
  management: 'Octavia:management',
} as const
