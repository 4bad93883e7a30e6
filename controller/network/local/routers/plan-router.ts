import { contains, normaliseAddress, parseCidr } from '../../addresses.js'
import { gatewayName, interfaceName, type Router, type RouterPort } from './router.js'

/** What a router's namespace has, as `ip -json` tells. */
export type ObservedRouter = {
  links: readonly { name: string; up: boolean }[]
  /** With prefix lengths; without link-local ones, which IPv6 assigns by itself. */
  addresses: readonly { device: string; address: string }[]
  /** Those that Krater made. */
  routes: readonly { device: string; destination: string; nextHop: string }[]
}

export type RouterPlan = {
  /** Commands for `ip -batch`, in the router's namespace. */
  lines: string[]
  /** Legs with new addresses, which neighbours must hear of. */
  announce: { device: string; macAddress: string }[]
}

type Route = ObservedRouter['routes'][number]

/** The legs of a router, by their names in its namespace. */
export const legsOf = ({ interfaces, gateway }: Router): { name: string; port: RouterPort }[] => [
  ...interfaces.map(port => ({ name: interfaceName(port), port })),
  ...(gateway === null ? [] : [{ name: gatewayName(gateway), port: gateway }]),
]

/** Marks Krater's routes, so that others (the kernel's own) are left alone. */
const PROTOCOL = 'proto static'

/** What to do in a router's namespace once its legs are there. Nothing, if all is as it should be. Pure. */
export function planRouter(router: Router, observed: ObservedRouter): RouterPlan {
  const legs = legsOf(router)
  const names = new Set(legs.map(({ name }) => name))
  const addresses = legs.flatMap(({ name, port }) =>
    addressesOn(router, port).map(address => ({ device: name, address })),
  )
  const key = ({ device, address }: { device: string; address: string }) => `${device} ${address}`
  const [present, desired] = [new Set(observed.addresses.map(key)), new Set(addresses.map(key))]
  const missing = addresses.filter(each => !present.has(key(each)))
  const superfluous = observed.addresses.filter(each => names.has(each.device) && !desired.has(key(each)))
  const down = legs.filter(({ name }) => !observed.links.some(link => link.name === name && link.up))
  const [had, routes] = [observed.routes.map(routeKey), routesOf(router, legs)]
  const wanted = new Set(routes.map(routeKey))
  return {
    lines: [
      ...superfluous.map(({ device, address }) => `address delete ${address} dev ${device}`),
      ...missing.map(
        // No other machine can have it on a network that Krater manages.
        ({ device, address }) => `address replace ${address} dev ${device}${address.includes(':') ? ' nodad' : ''}`,
      ),
      ...down.map(({ name }) => `link set dev ${name} up`),
      ...observed.routes
        .filter(route => names.has(route.device) && !wanted.has(routeKey(route)))
        .map(route => `route delete ${route.destination} via ${route.nextHop} dev ${route.device} ${PROTOCOL}`),
      ...routes
        .filter(route => !had.includes(routeKey(route)) || down.length > 0 || missing.length > 0)
        .map(
          ({ destination, nextHop, device }) =>
            `route replace ${destination} via ${nextHop} dev ${device} onlink ${PROTOCOL}`,
        ),
    ],
    announce: legs
      .filter(({ name }) => missing.some(({ device }) => device === name))
      .map(({ name, port }) => ({ device: name, macAddress: port.macAddress })),
  }
}

const routeKey = ({ device, destination, nextHop }: Route): string => `${device} ${destination} ${nextHop}`

/** A leg's addresses. The external one also has the floating IPs, so that it answers for them. */
const addressesOn = (router: Router, port: RouterPort): string[] => [
  ...port.addresses,
  ...(port === router.gateway ? router.floatingIps.map(({ address }) => `${address}/32`) : []),
]

function routesOf({ gateway, routes }: Router, legs: readonly { name: string; port: RouterPort }[]): Route[] {
  const defaults = (gateway?.nextHops ?? []).map(nextHop => ({
    device: gateway === null ? '' : gatewayName(gateway),
    destination: nextHop.includes(':') ? '::/0' : '0.0.0.0/0',
    nextHop,
  }))
  const extra = routes.flatMap(({ destination, nextHop }) => {
    const leg = legs.find(({ port }) => port.addresses.some(address => isOn(address, nextHop)))
    return leg === undefined ? [] : [{ device: leg.name, destination, nextHop }]
  })
  // A destination has one route: the first, and an extra default route comes before the gateway's.
  const byDestination = new Map([...extra, ...defaults].reverse().map(route => [route.destination, route]))
  return [...byDestination.values()]
}

function isOn(address: string, nextHop: string): boolean {
  const cidr = parseCidr(address)
  return cidr !== null && contains(cidr, nextHop)
}

type AddressRow = {
  ifname: string
  flags: string[]
  addr_info: { local: string; prefixlen: number; scope: string }[]
}
type RouteRow = { dst: string; gateway?: string; dev?: string; protocol?: string }

/** Reads what `ip -json -details` tells of links with addresses, and of the routes of each family. */
export function observedRouter(
  rows: readonly AddressRow[],
  routes: Readonly<Record<4 | 6, readonly RouteRow[]>>,
): ObservedRouter {
  const routesOfFamily = (family: 4 | 6): Route[] =>
    routes[family].flatMap(({ dst, gateway, dev, protocol }) => {
      if (protocol !== 'static' || gateway === undefined || dev === undefined) return []
      const all = family === 4 ? '0.0.0.0/0' : '::/0'
      const destination = dst === 'default' ? all : dst.includes('/') ? dst : `${dst}/${family === 4 ? 32 : 128}`
      return [{ device: dev, destination, nextHop: normaliseAddress(gateway) ?? gateway }]
    })
  return {
    links: rows.map(({ ifname, flags }) => ({ name: ifname, up: flags.includes('UP') })),
    addresses: rows.flatMap(({ ifname, addr_info }) =>
      addr_info
        .filter(({ scope }) => scope !== 'link' && scope !== 'host')
        .map(({ local, prefixlen }) => ({ device: ifname, address: `${normaliseAddress(local)}/${prefixlen}` })),
    ),
    routes: [...routesOfFamily(4), ...routesOfFamily(6)],
  }
}
