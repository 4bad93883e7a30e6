import * as z from 'zod'
import { parseCidr, widestCidrs } from '../addresses.js'
import { nft, nftJson, nftTable } from './nft-command.js'

export type AddressPair = { address: string; macAddress: string }

/** An interface on a bridge, and the addresses its machine may send from. */
export type GuardedInterface = {
  /** Name of the interface's end in the fabric; starts with `p`, that of a router's leg with `r`. */
  name: string
  macAddress: string
  /** The port's addresses, and the VIPs it may hold. */
  addresses: readonly string[]
  /** What else it may send from: addresses or CIDRs, with the MAC address that they have. */
  pairs?: readonly AddressPair[]
  /** Without port security: it may send from any address, as anybody. */
  isOpen?: boolean
  /** For a router's leg: whose packets it passes on, besides its own. CIDRs, or anybody's. */
  forwards?: 'anything' | readonly string[]
}

const TABLE = 'bridge krater'
/** A bridge remembers each address that sends, in memory of the kernel. */
const MAX_OPEN_MACS = 1024

/**
 * Types of frames and messages: of VLANs (the kernel looks behind the tag, so other rules would let such a frame pass to a
 * VLAN of its choice), what routers pass on, what they say, neighbour discovery, and what comes from no address yet.
 */
const NAMED_SETS = `  set tagged { type ether_type; elements = { 8021q, 8021ad }; }
  set routed { type ether_type; elements = { ip, ip6 }; }
  set routing { type icmpv6_type; elements = { nd-router-advert, nd-redirect }; }
  set discovery { type icmpv6_type; elements = {
    nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect }; }
  set unspecified { type icmpv6_type; elements = { nd-router-solicit, mld-listener-report, mld2-listener-report }; }`

/**
 * Lets interfaces send with their own MAC address and addresses only, also in ARP and neighbour discovery, and not act
 * as a router or a DHCP server. Call it before an interface joins its bridge: without it, an interface cannot send. May
 * be repeated; it is one transaction.
 * @throws IpCommandError with nft's error output
 */
export async function guardInterfaces(namespace: string, nics: readonly GuardedInterface[]): Promise<void> {
  await nft(
    namespace,
    `table ${TABLE} {
  map ports { type ifname : verdict; }
${NAMED_SETS}
  chain from_ports { type filter hook prerouting priority dstnat; policy accept; }
}
flush chain ${TABLE} from_ports
add rule ${TABLE} from_ports iifname "p*" ether type @tagged drop
add rule ${TABLE} from_ports iifname "r*" ether type @tagged drop
add rule ${TABLE} from_ports iifname vmap @ports
add rule ${TABLE} from_ports iifname "p*" drop
add rule ${TABLE} from_ports iifname "r*" drop
${nics.map(guardCommands).join('')}`,
  )
}

/** Pure. */
function guardCommands(nic: GuardedInterface): string {
  const { name } = nic
  return `add chain ${TABLE} ${name}
flush chain ${TABLE} ${name}
${nic.isOpen ? declareMacs(name) : `${declareMacs(name)}delete set ${TABLE} ${macsOf(name)}\n`}${rulesOf(nic)
  .map(rule => `add rule ${TABLE} ${name} ${rule}\n`)
  .join('')}add element ${TABLE} ports { "${name}" : goto ${name} }
`
}

/** The set of MAC addresses that an open interface has sent from. */
const macsOf = (name: string): string => `macs_${name}`
const declareMacs = (name: string): string =>
  `add set ${TABLE} ${macsOf(name)} { type ether_addr; size ${MAX_OPEN_MACS}; flags dynamic,timeout; timeout 10m; }\n`

const guardSchema = z.object({
  nftables: z.array(z.object({ chain: z.object({ name: z.string() }).optional() })),
})

/** The names of interfaces that have rules, whether they are there or not. */
export async function guardedInterfaces(namespace: string): Promise<string[]> {
  const answer = await nftJson(namespace, ['chains', 'bridge'])
  if (answer === null) return []
  const names = guardSchema.parse(answer).nftables.flatMap(({ chain }) => chain?.name ?? [])
  return names.filter(name => /^[pr][0-9a-f]{11}$/.test(name))
}

/** A text that changes with every change of the rules, but not with traffic; null if there are none. */
export const guardState = (namespace: string): Promise<string | null> => nftTable(namespace, TABLE)

/** Removes the rules of an interface that is gone. No error if there are none. */
export async function unguardInterface(namespace: string, name: string): Promise<void> {
  await nft(
    namespace,
    `table ${TABLE} {
  map ports { type ifname : verdict; }
  chain ${name} { }
}
add element ${TABLE} ports { "${name}" : goto ${name} }
delete element ${TABLE} ports { "${name}" }
flush chain ${TABLE} ${name}
delete chain ${TABLE} ${name}
${declareMacs(name)}delete set ${TABLE} ${macsOf(name)}
`,
  )
}

/** An expression for any of these. The kernel reads and lists a single value much faster than a set. */
const oneOf = (list: readonly string[]): string => (list.length === 1 ? `${list[0]}` : `{ ${list.join(', ')} }`)

/** The last rule drops whatever the others do not accept. Pure. */
function rulesOf({ name, macAddress, addresses, pairs = [], isOpen = false, forwards }: GuardedInterface): string[] {
  if (isOpen) return [`update @${macsOf(name)} { ether saddr } accept`, 'drop']
  const macs = oneOf([...new Set([macAddress, ...pairs.map(pair => pair.macAddress)])])
  const own4 = widest([...addresses, ...pairs.map(({ address }) => address)].filter(address => !address.includes(':')))
  const own6 = widest([
    ...[...addresses, ...pairs.map(({ address }) => address)].filter(address => address.includes(':')),
    ...[macAddress, ...pairs.map(pair => pair.macAddress)].map(linkLocal),
  ])
  const targets = oneOf(own6.map(rangeOf))
  return [
    `ether saddr != ${macs} drop`,
    ...(own4.length === 0
      ? []
      : [
          `arp saddr ether ${macs} arp saddr ip ${oneOf(own4)} accept`,
          // Probes check that an address is unused. One for somebody else's would make him give it up.
          `arp saddr ether ${macs} arp saddr ip 0.0.0.0 arp daddr ip ${oneOf(own4)} accept`,
          ...(forwards === undefined ? ['udp sport 67 udp dport 68 drop'] : []),
          `ip saddr ${oneOf(own4)} accept`,
        ]),
    'icmpv6 type @routing drop',
    // In fragments it could be hidden from these rules. No honest machine sends it so (RFC 6980).
    'icmpv6 type @discovery exthdr frag exists drop',
    // The target address in a solicitation or advertisement is at byte 8 of the ICMPv6 message.
    `icmpv6 type nd-neighbor-advert @th,64,128 != ${targets} drop`,
    ...(forwards === undefined ? ['udp sport 547 udp dport 546 drop'] : []),
    `ip6 saddr ${oneOf(own6)} ${LEGIBLE} accept`,
    `ip6 saddr :: icmpv6 type nd-neighbor-solicit @th,64,128 ${targets} accept`,
    'ip6 saddr :: icmpv6 type @unspecified accept',
    ...(forwards === undefined ? [] : forwardingRules(forwards)),
    'drop',
  ]
}

/** The packet has all of its extension headers (RFC 7112), so the rules above have seen what is behind them. 255 is reserved. */
const LEGIBLE = 'meta l4proto != 255'

/** Without what others of the list contain: sets of nft refuse overlaps. */
const widest = (list: readonly string[]): string[] =>
  widestCidrs(list.map(address => (address.includes('/') ? address : `${address}/${address.includes(':') ? 128 : 32}`)))

/** VRRP stays on its network: nobody may send it as an amphora by way of a router. */
function forwardingRules(forwards: 'anything' | readonly string[]): string[] {
  if (forwards === 'anything') return ['meta l4proto 112 drop', `meta protocol @routed ${LEGIBLE} accept`]
  const four = forwards.filter(cidr => !cidr.includes(':'))
  const six = forwards.filter(cidr => cidr.includes(':'))
  return [
    'meta l4proto 112 drop',
    ...(four.length === 0 ? [] : [`ip saddr ${oneOf(four)} accept`]),
    ...(six.length === 0 ? [] : [`ip6 saddr ${oneOf(six)} ${LEGIBLE} accept`]),
  ]
}

/** The link-local address the kernel derives from a MAC address (RFC 4291, appendix A). */
function linkLocal(macAddress: string): string {
  const [first = 0, ...rest] = macAddress.split(':').map(byte => Number.parseInt(byte, 16))
  const bytes = [first ^ 2, ...rest.slice(0, 2), 0xff, 0xfe, ...rest.slice(2)]
  const hex = bytes.map(byte => byte.toString(16).padStart(2, '0')).join('')
  return `fe80::${(hex.match(/.{4}/g) ?? []).join(':')}`
}

/** The addresses of a CIDR in IPv6, as a range of numbers. */
function rangeOf(text: string): string {
  const { first, last } = parseCidr(text) ?? { first: 0n, last: 0n }
  const hex = (value: bigint) => `0x${value.toString(16).padStart(32, '0')}`
  return first === last ? hex(first) : `${hex(first)}-${hex(last)}`
}
