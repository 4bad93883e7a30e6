import { contains, parseCidr, widestCidrs } from '../../addresses.js'
import type { Flow } from '../connections/conntrack.js'
import { SHARE_KEY, shareRules } from '../connections/shares.js'
import { gatewayName, interfaceName, type Router, type RouterPort } from './router.js'

/** The table of a router's namespace, with its family. */
export const ROUTER_TABLE = 'inet krater'
/** On packets that came by an internal leg. */
const FROM_INSIDE = '0x1'

const isIpv4 = (address: string): boolean => !address.includes(':')
const elements = (list: readonly string[]): string => `{ ${list.join(', ')} }`

/** The subnets of a leg, and what extra routes lead to by it. */
export function networksBehind(leg: RouterPort, routes: Router['routes']): string[] {
  const own = leg.addresses.flatMap(address => parseCidr(address) ?? [])
  const behind = routes.filter(({ nextHop }) => own.some(cidr => contains(cidr, nextHop)))
  return widestCidrs([...own.map(({ text }) => text), ...behind.map(({ destination }) => destination)])
}

/**
 * The commands that make the table filter and translate as the router should, from whatever state, in one transaction.
 * Connections, which the kernel keeps apart from the table, stay as they are. Pure.
 */
export function natCommands(router: Router): string {
  const rules = (chain: string, list: readonly string[]) => [
    `flush chain ${ROUTER_TABLE} ${chain}`,
    ...list.map(rule => `add rule ${ROUTER_TABLE} ${chain} ${rule}`),
  ]
  const map = (name: string, pairs: readonly string[]) => [
    `flush map ${ROUTER_TABLE} ${name}`,
    ...(pairs.length === 0 ? [] : [`add element ${ROUTER_TABLE} ${name} ${elements(pairs)}`]),
  ]
  const { floatingIps } = router
  return `${[
    `table ${ROUTER_TABLE} {
  set connections { typeof iifname . ${SHARE_KEY}; flags dynamic; }
  map floating { type ipv4_addr : ipv4_addr; }
  map fixed { type ipv4_addr : ipv4_addr; }
  chain share { type filter hook prerouting priority mangle; policy accept; }
  chain to_floating { type nat hook prerouting priority dstnat; policy accept; }
  chain input { type filter hook input priority filter; policy drop; }
  chain forward { type filter hook forward priority filter; policy drop; }
  chain from_fixed { type nat hook postrouting priority srcnat; policy accept; }
}`,
    ...map(
      'floating',
      floatingIps.map(({ address, fixedAddress }) => `${address} : ${fixedAddress}`),
    ),
    ...map(
      'fixed',
      floatingIps.map(({ address, fixedAddress }) => `${fixedAddress} : ${address}`),
    ),
    // A flood by one leg leaves the others usable.
    ...rules('share', [...shareRules('connections', 'iifname'), 'meta mark set 0x0']),
    ...rules('to_floating', ['dnat ip to ip daddr map @floating']),
    ...rules('input', INPUT),
    ...rules('forward', forwardRules(router)),
    ...rules('from_fixed', sourceRules(router)),
  ].join('\n')}\n`
}

/** Nothing listens on a router. It answers pings, within limits, and resolves addresses. */
const INPUT = [
  'ct state established,related accept',
  'icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept',
  'icmp type echo-request limit rate 100/second burst 100 packets accept',
  'icmpv6 type echo-request limit rate 100/second burst 100 packets accept',
]

function forwardRules({ interfaces, gateway, routes }: Router): string[] {
  return [
    'ip daddr 169.254.0.0/16 drop',
    ...interfaces.flatMap(leg => {
      const networks = networksBehind(leg, routes)
      const [four, six] = [networks.filter(isIpv4), networks.filter(cidr => !isIpv4(cidr))]
      const name = interfaceName(leg)
      return [
        `iifname "${name}" ip saddr ${four.length === 0 ? '0.0.0.0/0' : `!= ${elements(four)}`} drop`,
        `iifname "${name}" ip6 saddr ${six.length === 0 ? '::/0' : `!= ${elements(six)}`} drop`,
      ]
    }),
    ...(gateway === null ? [] : honestSourceRules(interfaces, gateway)),
    `iifname "qr-*" meta mark set ${FROM_INSIDE}`,
    'ct state established,related accept',
    'ct state invalid drop',
    'iifname "qr-*" accept',
    ...(gateway === null ? [] : inboundRules(interfaces, gateway, routes)),
  ]
}

/**
 * Nobody on the external network passes for a machine on the inside, whom rules of security groups may trust. Nor the
 * other way round: an extra route can claim that any address is behind a leg, and IPv6 leaves as it is.
 */
function honestSourceRules(interfaces: readonly RouterPort[], gateway: NonNullable<Router['gateway']>): string[] {
  const inside = widestCidrs(
    interfaces.flatMap(({ addresses }) => addresses.flatMap(each => parseCidr(each)?.text ?? [])),
  )
  const outside = widestCidrs(gateway.subnets)
  const drop = (direction: string, cidrs: readonly string[]) =>
    [cidrs.filter(isIpv4), cidrs.filter(cidr => !isIpv4(cidr))].flatMap((list, six) =>
      list.length === 0
        ? []
        : [`${direction} "${gatewayName(gateway)}" ${six ? 'ip6' : 'ip'} saddr ${elements(list)} drop`],
    )
  return [...drop('iifname', inside), ...drop('oifname', outside)]
}

/** Whoever is on the external network reaches floating IPs and, where nothing translates, the subnets themselves. */
function inboundRules(
  interfaces: readonly RouterPort[],
  gateway: NonNullable<Router['gateway']>,
  routes: Router['routes'],
): string[] {
  const inside = widestCidrs(interfaces.flatMap(leg => networksBehind(leg, routes)))
  const open4 = gateway.snatAddress === null ? inside.filter(isIpv4) : []
  const open6 = inside.filter(cidr => !isIpv4(cidr))
  const from = `iifname "${gatewayName(gateway)}"`
  return [
    `${from} ct status dnat accept`,
    ...(open4.length === 0 ? [] : [`${from} ip daddr ${elements(open4)} accept`]),
    ...(open6.length === 0 ? [] : [`${from} ip6 daddr ${elements(open6)} accept`]),
  ]
}

/**
 * What a floating IP leads to also leaves with it. Whoever comes to a floating IP from the inside gets another source
 * address as well, else the answer would not pass the router.
 */
function sourceRules({ gateway }: Router): string[] {
  if (gateway === null) return []
  const { snatAddress } = gateway
  const out = `oifname "${gatewayName(gateway)}" meta mark ${FROM_INSIDE}`
  const back = `meta mark ${FROM_INSIDE} ct status dnat`
  return [
    `${out} snat ip to ip saddr map @fixed`,
    `${back} snat ip to ip saddr map @fixed`,
    ...(snatAddress === null
      ? []
      : [`${out} meta nfproto ipv4 snat ip to ${snatAddress}`, `${back} meta nfproto ipv4 snat ip to ${snatAddress}`]),
  ]
}

/** Whether a router no longer translates as the previous one did. Pure. */
export function givesUp(router: Router, previous: Router): boolean {
  const leadsTo = new Map(router.floatingIps.map(({ address, fixedAddress }) => [address, fixedAddress]))
  return (
    router.gateway?.snatAddress !== previous.gateway?.snatAddress ||
    previous.floatingIps.some(({ address, fixedAddress }) => leadsTo.get(address) !== fixedAddress)
  )
}

/**
 * Filters that select the translated connections that the router would no longer make: to or from a floating IP that
 * leads elsewhere now, or with a gateway address that it gave up. Pure.
 */
export function staleFlows(router: Router, flows: readonly Flow[]): string[][] {
  const leadsTo = new Map(router.floatingIps.map(({ address, fixedAddress }) => [address, fixedAddress]))
  const stale = new Map<string, string[]>()
  const add = (filter: string[]) => stale.set(filter.join(' '), filter)
  for (const { original, reply } of flows) {
    const isDnat = original.destination !== reply.source
    const isSnat = original.source !== reply.destination
    if (isDnat && leadsTo.get(original.destination) !== reply.source) {
      add(['--orig-dst', original.destination, '--reply-src', reply.source])
    }
    const source = reply.destination
    const isOurs = source === router.gateway?.snatAddress || leadsTo.get(source) === original.source
    if (isSnat && !isOurs) add(['--orig-src', original.source, '--reply-dst', source])
  }
  return [...stale.values()]
}
