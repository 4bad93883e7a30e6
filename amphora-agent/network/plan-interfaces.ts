import type { Interface } from '../protocol/desired.js'
import { canonical, familyOf, networkOf } from './address.js'
import type { Observed } from './observed.js'

/** One line for `ip -batch`. */
export type IpCommand = {
  family: 4 | 6
  line: string
  /** Without it nothing can be served; a bad host route only costs that route. */
  essential: boolean
}

export type InterfacePlan = {
  /** Before anything else: the interface with this MAC address gets this name. */
  renames: { from: string; to: string }[]
  links: IpCommand[]
  /** What is missing. */
  additions: IpCommand[]
  /** What is ours and no longer desired; for after the change. */
  removals: IpCommand[]
  /** Interfaces that got a new address: neighbours should learn of it. */
  announce: string[]
}

export const NO_CHANGE: InterfacePlan = { renames: [], links: [], additions: [], removals: [], announce: [] }

/** Routing tables of VIPs: one each, from here on. */
const FIRST_TABLE = 100
const LAST_TABLE = 299
const RULE_PRIORITY = 100

/**
 * From the interfaces as they are to the interfaces as they should be. The interfaces belong to us entirely: an address, a static route or a rule of ours
 * that is not desired goes. With keepalived the VIPs with their routes and rules are keepalived's and are left alone.
 * @param former names of interfaces that an earlier configuration used; those no longer desired are emptied
 * @param vipsHeldBy who gives VIPs to the interfaces
 */
export function planInterfaces(
  desired: readonly Interface[],
  observed: Observed,
  former: readonly string[],
  vipsHeldBy: 'us' | 'keepalived',
): InterfacePlan {
  const { renames, nameOf } = planNames(desired, observed.links)
  const named = (device: string) => nameOf.get(device) ?? device

  const targets = desired.map(iface => targetOf(iface, desired, vipsHeldBy))
  const additions: IpCommand[] = []
  const removals: IpCommand[] = []
  const links: IpCommand[] = []
  const announce = new Set<string>()

  for (const iface of desired) {
    const link = observed.links.find(({ mac }) => mac === iface.mac)
    if (link && (!link.up || link.mtu !== iface.mtu || link.name !== iface.name)) {
      links.push({ family: 4, line: `link set dev ${iface.name} mtu ${iface.mtu} up`, essential: true })
    }
  }

  const addresses = new Set(
    observed.addresses.map(({ device, address, prefix }) => `${named(device)} ${canonical(address)}/${prefix}`),
  )
  const routes = new Set(observed.routes.map(route => routeKey({ ...route, device: named(route.device) })))
  const rules = new Set(observed.rules.map(ruleKey))
  const connected = new Set(
    observed.connected.map(({ device, destination }) => `${named(device)} ${networkOf(destination)}`),
  )
  const up = new Set(observed.links.filter(link => link.up).map(({ name }) => named(name)))
  for (const target of targets) {
    for (const address of target.addresses) {
      if (addresses.has(address.key)) {
        if (address.connected === null || !up.has(target.device) || connected.has(address.connected.key)) continue
        additions.push(address.connected)
        continue
      }
      additions.push({ family: address.family, line: address.line, essential: true })
      announce.add(target.device)
    }
  }
  for (const target of targets) {
    for (const route of target.routes) {
      if (!routes.has(route.key)) additions.push(route)
    }
    for (const rule of target.rules) if (!rules.has(rule.key)) additions.push(rule)
  }

  const desiredAddresses = new Set(targets.flatMap(target => target.addresses.map(({ key }) => key)))
  const desiredRoutes = new Set(targets.flatMap(target => target.routes.map(({ key }) => key)))
  const desiredRules = new Set(targets.flatMap(target => target.rules.map(({ key }) => key)))
  const ours = new Set([...desired.map(({ name }) => name), ...former])
  const keepalivedVips = new Set(
    vipsHeldBy === 'keepalived' ? desired.flatMap(iface => iface.vips.map(vip => canonical(vip.address))) : [],
  )
  const isOurTable = (table: string) => Number(table) >= FIRST_TABLE && Number(table) <= LAST_TABLE
  for (const rule of observed.rules) {
    if (!isOurTable(rule.table) || desiredRules.has(ruleKey(rule))) continue
    removals.push({
      family: rule.family,
      line: `rule del from ${rule.source} table ${rule.table} priority ${rule.priority}`,
      essential: false,
    })
  }
  for (const observedRoute of observed.routes) {
    const route = { ...observedRoute, device: named(observedRoute.device) }
    if (!ours.has(route.device) || desiredRoutes.has(routeKey(route))) continue
    if (route.table !== 'main' && !isOurTable(route.table)) continue
    const via = route.gateway === null ? '' : ` via ${route.gateway}`
    removals.push({
      family: route.family,
      line: `route del ${route.destination}${via} dev ${route.device} table ${route.table}`,
      essential: false,
    })
  }
  for (const { device, family, address, prefix } of observed.addresses) {
    const name = named(device)
    const key = `${name} ${canonical(address)}/${prefix}`
    if (!ours.has(name) || desiredAddresses.has(key) || keepalivedVips.has(canonical(address))) continue
    removals.push({ family, line: `addr del ${address}/${prefix} dev ${name}`, essential: false })
  }
  return { renames, links, additions, removals, announce: [...announce] }
}

/** Renames in an order in which no name is ever taken twice, and the name that each interface of ours will have. */
function planNames(desired: readonly Interface[], links: Observed['links']) {
  const plugged = desired.flatMap(({ mac, name }) => {
    const link = links.find(candidate => candidate.mac === mac)
    return link ? [{ now: link.name, name, mac }] : []
  })
  const nameOf = new Map(plugged.map(({ now, name }) => [now, name]))
  const moving = plugged.filter(({ now, name }) => now !== name)
  const inTheWay = links.filter(link => moving.some(({ name }) => name === link.name))
  const passing = (kind: 'old' | 'new', mac: string) => `${kind}-${mac.replaceAll(':', '').slice(-8)}`
  const renames = [
    ...inTheWay
      .filter(({ name }) => !nameOf.has(name))
      .map(({ name, mac }) => ({ from: name, to: passing('old', mac) })),
    ...(inTheWay.length > 0 ? moving.map(({ now, mac }) => ({ from: now, to: passing('new', mac) })) : []),
    ...moving.map(({ now, name, mac }) => ({ from: inTheWay.length > 0 ? passing('new', mac) : now, to: name })),
  ]
  return { renames, nameOf }
}

type Target = {
  device: string
  /** `connected`: the route that the kernel makes with the address, which somebody may take away alone. */
  addresses: (IpCommand & { key: string; connected: (IpCommand & { key: string }) | null })[]
  routes: (IpCommand & { key: string })[]
  rules: (IpCommand & { key: string })[]
}

function targetOf(iface: Interface, all: readonly Interface[], vipsHeldBy: 'us' | 'keepalived'): Target {
  const { name: device } = iface
  const target: Target = { device, addresses: [], routes: [], rules: [] }
  for (const cidr of iface.addresses) {
    const [address, prefix] = cidr.split('/') as [string, string]
    const family = familyOf(address)
    target.addresses.push({
      key: `${device} ${canonical(address)}/${prefix}`,
      family,
      line: `addr add ${cidr} dev ${device}${family === 6 ? ' nodad' : ''}`,
      essential: true,
      connected: connectedRoute(device, cidr),
    })
  }
  for (const { destination, gateway } of iface.routes) {
    target.routes.push(route({ device, destination, gateway, table: 'main', source: null }, false))
  }
  if (vipsHeldBy === 'keepalived') return target

  const order = all.flatMap(({ vips }) => vips)
  for (const vip of iface.vips) {
    const family = familyOf(vip.address)
    const prefix = family === 4 ? 32 : 128
    const table = String(FIRST_TABLE + order.indexOf(vip))
    target.addresses.push({
      key: `${device} ${canonical(vip.address)}/${prefix}`,
      family,
      // Deprecated from the start, so that the kernel never chooses an IPv6 VIP as the source of connections to members.
      line: `addr add ${vip.address}/${prefix} dev ${device}${family === 6 ? ' preferred_lft 0 nodad' : ''}`,
      essential: true,
      connected: null,
    })
    target.routes.push(
      route({ device, destination: networkOf(vip.subnet), gateway: null, table, source: vip.address }, true),
    )
    if (vip.gateway !== null) {
      const destination = family === 4 ? '0.0.0.0/0' : '::/0'
      target.routes.push(route({ device, destination, gateway: vip.gateway, table, source: null }, true))
    }
    target.rules.push({
      key: ruleKey({ family, priority: RULE_PRIORITY, source: vip.address, table }),
      family,
      line: `rule add from ${vip.address} table ${table} priority ${RULE_PRIORITY}`,
      essential: true,
    })
  }
  return target
}

function connectedRoute(device: string, cidr: string): (IpCommand & { key: string }) | null {
  const [address, prefix] = cidr.split('/') as [string, string]
  const family = familyOf(address)
  if (Number(prefix) === (family === 4 ? 32 : 128)) return null
  const network = networkOf(cidr)
  const rest = family === 4 ? `scope link src ${address}` : 'metric 256'
  return {
    key: `${device} ${network}`,
    family,
    line: `route replace ${network} dev ${device} proto kernel ${rest}`,
    essential: true,
  }
}

type RouteFacts = { device: string; destination: string; gateway: string | null; table: string; source: string | null }

function route(facts: RouteFacts, essential: boolean): IpCommand & { key: string } {
  const { device, destination, gateway, table, source } = facts
  const family = familyOf(destination)
  const via =
    gateway === null ? (family === 4 ? ' scope link' : '') : ` via ${gateway}${table === 'main' ? '' : ' onlink'}`
  const src = source === null || family === 6 ? '' : ` src ${source}`
  return {
    key: routeKey(facts),
    family,
    line: `route replace ${networkOf(destination)}${via} dev ${device} table ${table}${src} proto static`,
    essential,
  }
}

/** The source only breaks ties and is not shown for every route: it is no part of what tells routes apart. */
function routeKey({ device, destination, gateway, table }: RouteFacts): string {
  return [device, networkOf(destination), gateway === null ? '-' : canonical(gateway), table].join(' ')
}

function ruleKey({ family, priority, source, table }: Observed['rules'][number]): string {
  return [family, priority, canonical(source.split('/')[0] ?? ''), table].join(' ')
}
