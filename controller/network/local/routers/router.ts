/** A port of a router, on one of its networks. */
export type RouterPort = {
  portId: string
  networkId: string
  mtu: number
  macAddress: string
  /** Its addresses, with the prefix lengths of their subnets. */
  addresses: readonly string[]
}

export type RouterGateway = RouterPort & {
  /** The gateways of the external network's subnets, at most one of each family. */
  nextHops: readonly string[]
  /** All subnets of the external network. */
  subnets: readonly string[]
  /** The IPv4 address that SNAT gives to what leaves by the gateway; null without SNAT. */
  snatAddress: string | null
}

/** What a router does. Addresses are canonical. */
export type Router = {
  id: string
  interfaces: readonly RouterPort[]
  /** Its leg on the external network. */
  gateway: RouterGateway | null
  /** IPv4 addresses on the external network, each with the address that it leads to. */
  floatingIps: readonly { address: string; fixedAddress: string }[]
  /** Extra routes. A next hop is on one of the router's subnets. */
  routes: readonly { destination: string; nextHop: string }[]
}

const digits = (id: string, count: number): string => id.replaceAll('-', '').toLowerCase().slice(0, count)

/** Beginning of the names of all routers' namespaces. No attachment's namespace begins like this. */
export const routerNamespaces = (instance: string): string => `krater-router-${instance}-`

/** Name of a router's network namespace. @param instance distinguishes this installation from others on the host */
export const routerNamespace = (instance: string, routerId: string): string =>
  `${routerNamespaces(instance)}${digits(routerId, 12)}`

/** Name of a leg in the router's namespace, by Neutron's custom. */
export const interfaceName = ({ portId }: RouterPort): string => `qr-${digits(portId, 11)}`
export const gatewayName = ({ portId }: RouterPort): string => `qg-${digits(portId, 11)}`
