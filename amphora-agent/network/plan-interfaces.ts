import type { Interface } from '../protocol/desired.js'
import { canonical, familyOf, networkOf } from './address.js'
import { isReplyMark, replyMark } from './marks.js'
import type { Observed } from './observed.js'

/** One line for `ip -batch`. */
export type IpCommand = {
  family: 4 | 6
  line: string
  /** If it fails, the amphora cannot serve. A bad host route, in contrast, costs only that route. */
  essential: boolean
}

export type InterfacePlan = {
  /** Renames of interfaces, found by MAC address; these come first. */
  renames: { from: string; to: string }[]
  links: IpCommand[]
  additions: IpCommand[]
  /** Ours and no longer desired; removed after the change. */
  removals: IpCommand[]
  /** Interfaces with a new address to announce to neighbours. */
  announce: string[]
}

type VipHolder = 'us' | 'keepalived'

export const NO_CHANGE: InterfacePlan = { renames: [], links: [], additions: [], removals: [], announce: [] }

/** Routing tables of VIPs: one each, in this range. */
const FIRST_TABLE = 100
const LAST_TABLE = 299
const RULE_PRIORITY = 100
/** keepalived's table of the first VIP, as the controller renders it. */
const FIRST_KEEPALIVED_TABLE = 1

/**
 * Plans the way from the observed interfaces to the desired ones. The interfaces belong to us entirely: addresses,
 * static routes and our rules that are not desired are removed. Where keepalived holds the VIPs, it owns them and
 * their routes and rules, and the plan leaves them alone.
 * @param former names of interfaces of an earlier configuration; those no longer desired lose everything
 * @param vipsHeldBy who adds the VIPs to the interfaces
 * @param forwards whether packets are forwarded to members: their replies find a VIP's routes by a mark, since they have
 *   the VIP as their source only after that
 */
export function planInterfaces(
  desired: readonly Interface[],
  observed: Observed,
  former: readonly string[],
  vipsHeldBy: VipHolder,
  forwards: boolean,
): InterfacePlan {
  const { renames, nameOf } = planNames(desired, observed.links)
  const named = applyNames(observed, device => nameOf.get(device) ?? device)
  const targets = desired.map(iface => planTarget(iface, desired, vipsHeldBy, forwards))
  const keepalivedVips = vipsHeldBy === 'keepalived' ? desired.flatMap(({ vips }) => vips) : []
  const addresses = planAddresses(targets, named)
  return {
    renames,
    links: planLinks(desired, observed),
    additions: [...addresses.additions, ...planRoutes(targets, named)],
    removals: planRemovals(targets, named, {
      ours: new Set([...desired.map(({ name }) => name), ...former]),
      keepalivedVips: new Set(keepalivedVips.map(({ address }) => canonical(address))),
    }),
    announce: addresses.announce,
  }
}

/** The observation with the names that interfaces will have. */
function applyNames(observed: Observed, nameOf: (device: string) => string): Observed {
  const withName = <T extends { device: string }>(facts: readonly T[]): T[] =>
    facts.map(fact => ({ ...fact, device: nameOf(fact.device) }))
  return {
    ...observed,
    links: observed.links.map(link => ({ ...link, name: nameOf(link.name) })),
    addresses: withName(observed.addresses),
    routes: withName(observed.routes),
    connected: withName(observed.connected),
  }
}

/** @param observed with the names that interfaces have now */
function planLinks(desired: readonly Interface[], { links }: Observed): IpCommand[] {
  return desired.flatMap(({ mac, mtu, name }) => {
    const link = links.find(candidate => candidate.mac === mac)
    if (link === undefined || (link.up && link.mtu === mtu && link.name === name)) return []
    return [{ family: 4 as const, line: `link set dev ${name} mtu ${mtu} up`, essential: true }]
  })
}

/** Adds missing addresses, and the kernel's routes of existing addresses that were deleted. */
function planAddresses(targets: readonly Target[], observed: Observed): Pick<InterfacePlan, 'additions' | 'announce'> {
  const present = new Set(observed.addresses.map(addressKey))
  const connected = new Set(observed.connected.map(({ device, destination }) => `${device} ${networkOf(destination)}`))
  const up = new Set(observed.links.filter(link => link.up).map(({ name }) => name))
  const additions: IpCommand[] = []
  const announce = new Set<string>()
  for (const { device, addresses } of targets) {
    for (const { key, connected: route, ...command } of addresses) {
      if (!present.has(key)) {
        additions.push(command)
        announce.add(device)
      } else if (route !== null && up.has(device) && !connected.has(route.key)) {
        additions.push(route)
      }
    }
  }
  return { additions, announce: [...announce] }
}

function planRoutes(targets: readonly Target[], observed: Observed): IpCommand[] {
  const routes = new Set(observed.routes.map(routeKey))
  const rules = new Set(observed.rules.map(ruleKey))
  return targets.flatMap(target => [
    ...target.routes.filter(({ key }) => !routes.has(key)),
    ...target.rules.filter(({ key }) => !rules.has(key)),
  ])
}

const isOurTable = (table: string): boolean => Number(table) >= FIRST_TABLE && Number(table) <= LAST_TABLE

const isOurs = (rule: Observed['rules'][number]): boolean =>
  'mark' in rule ? isReplyMark(rule.mark) : isOurTable(rule.table)

/** Removes our rules, routes and addresses that are not desired. */
function planRemovals(
  targets: readonly Target[],
  observed: Observed,
  { ours, keepalivedVips }: { ours: ReadonlySet<string>; keepalivedVips: ReadonlySet<string> },
): IpCommand[] {
  const keysOf = (kind: 'addresses' | 'routes' | 'rules') =>
    new Set(targets.flatMap(target => target[kind].map(({ key }) => key)))
  const desired = { addresses: keysOf('addresses'), routes: keysOf('routes'), rules: keysOf('rules') }
  const rules = observed.rules.filter(rule => isOurs(rule) && !desired.rules.has(ruleKey(rule)))
  const routes = observed.routes.filter(
    route =>
      ours.has(route.device) &&
      !desired.routes.has(routeKey(route)) &&
      (route.table === 'main' || isOurTable(route.table)),
  )
  const addresses = observed.addresses.filter(
    found =>
      ours.has(found.device) &&
      !desired.addresses.has(addressKey(found)) &&
      !keepalivedVips.has(canonical(found.address)),
  )
  return [
    ...rules.map(rule => ({
      family: rule.family,
      line: `rule del ${'mark' in rule ? `fwmark ${rule.mark}` : `from ${rule.source}`} table ${rule.table} priority ${rule.priority}`,
    })),
    ...routes.map(({ family, destination, gateway, device, table }) => ({
      family,
      line: `route del ${destination}${gateway === null ? '' : ` via ${gateway}`} dev ${device} table ${table}`,
    })),
    ...addresses.map(({ family, address, prefix, device }) => ({
      family,
      line: `addr del ${address}/${prefix} dev ${device}`,
    })),
  ].map(command => ({ ...command, essential: false }))
}

/** The renames, in an order that never uses a name twice, and the final name of each of our interfaces. */
function planNames(desired: readonly Interface[], links: Observed['links']) {
  const plugged = desired.flatMap(({ mac, name }) => {
    const link = links.find(candidate => candidate.mac === mac)
    return link ? [{ now: link.name, name, mac }] : []
  })
  const nameOf = new Map(plugged.map(({ now, name }) => [now, name]))
  const moving = plugged.filter(({ now, name }) => now !== name)
  const conflicting = links.filter(link => moving.some(({ name }) => name === link.name))
  const temporaryName = (kind: 'old' | 'new', mac: string) => `${kind}-${mac.replaceAll(':', '').slice(-8)}`
  const renames = [
    ...conflicting
      .filter(({ name }) => !nameOf.has(name))
      .map(({ name, mac }) => ({ from: name, to: temporaryName('old', mac) })),
    ...(conflicting.length > 0 ? moving.map(({ now, mac }) => ({ from: now, to: temporaryName('new', mac) })) : []),
    ...moving.map(({ now, name, mac }) => ({
      from: conflicting.length > 0 ? temporaryName('new', mac) : now,
      to: name,
    })),
  ]
  return { renames, nameOf }
}

type Target = {
  device: string
  /** `connected`: the route that the kernel adds with the address; it can be deleted separately. */
  addresses: (IpCommand & { key: string; connected: (IpCommand & { key: string }) | null })[]
  routes: (IpCommand & { key: string })[]
  rules: (IpCommand & { key: string })[]
}

function planTarget(iface: Interface, all: readonly Interface[], vipsHeldBy: VipHolder, forwards: boolean): Target {
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
  const order = all.flatMap(({ vips }) => vips)
  if (forwards) target.rules.push(...iface.vips.map(vip => replyRule(vip.address, order.indexOf(vip), vipsHeldBy)))
  if (vipsHeldBy === 'keepalived') return target

  for (const vip of iface.vips) {
    const family = familyOf(vip.address)
    const prefix = family === 4 ? 32 : 128
    const table = String(FIRST_TABLE + order.indexOf(vip))
    target.addresses.push({
      key: `${device} ${canonical(vip.address)}/${prefix}`,
      family,
      // An IPv6 VIP is deprecated from the start, so that the kernel never uses it as the source of connections to
      // members.
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

function replyRule(vip: string, index: number, vipsHeldBy: VipHolder): IpCommand & { key: string } {
  const family = familyOf(vip)
  const table = String((vipsHeldBy === 'us' ? FIRST_TABLE : FIRST_KEEPALIVED_TABLE) + index)
  const mark = replyMark(index)
  return {
    key: ruleKey({ family, priority: RULE_PRIORITY, mark, table }),
    family,
    line: `rule add fwmark ${mark} table ${table} priority ${RULE_PRIORITY}`,
    essential: true,
  }
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

function addressKey({ device, address, prefix }: Pick<Observed['addresses'][number], 'device' | 'address' | 'prefix'>) {
  return `${device} ${canonical(address)}/${prefix}`
}

/** The source is not part of the key: it only breaks ties, and `ip` does not show it for every route. */
function routeKey({ device, destination, gateway, table }: RouteFacts): string {
  return [device, networkOf(destination), gateway === null ? '-' : canonical(gateway), table].join(' ')
}

function ruleKey(rule: Observed['rules'][number]): string {
  const { family, priority, table } = rule
  const selector = 'mark' in rule ? `mark ${rule.mark}` : canonical(rule.source.split('/')[0] ?? '')
  return [family, priority, selector, table].join(' ')
}
