/** An address of a load balancer. */
export type Vip = { address: string; networkId: string }

/** A leg of a router. Packets to its MAC address come in there. */
export type Entrance = { networkId: string; macAddress: string }

/** What the rows of a load balancer depend on besides its tree. */
export type OvnFacts = {
  /** Of this installation. */
  instance: string
  /** The main one first. */
  vips: readonly Vip[]
  /** Floating IPs that lead to one of them. */
  floatingIps: readonly { address: string; vip: string }[]
  /** Networks from which clients come: those of the VIPs, and those that routers join to them. */
  clientNetworks: readonly string[]
  /** Routers on the way that have a gateway: they balance what comes through them. */
  gatewayRouters: readonly string[]
  /** Their legs on other networks than those of clients, such as their gateways. */
  entrances: readonly Entrance[]
  /** By member: the logical port that has its address, and the address from which that subnet's members are probed. */
  probes: ReadonlyMap<string, { portId: string; source: string }>
}
