import * as z from 'zod'
import { parseCidr, widestCidrs } from '../addresses.js'
import { nft, nftJson } from './nft-command.js'

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

/**
 * Lets an interface send with its own MAC address and addresses only, also in ARP and neighbour discovery, and not act
 * as a router. Call it before the interface joins its bridge: without it, an interface cannot send. May be repeated.
 * @throws IpCommandError with nft's error output
 */
export async function guardInterface(namespace: string, nic: GuardedInterface): Promise<void> {
  await nft(
    namespace,
    `table ${TABLE} {
  map ports { type ifname : verdict; }
  chain from_ports { type filter hook prerouting priority dstnat; policy accept; }
}
flush chain ${TABLE} from_ports
add rule ${TABLE} from_ports iifname vmap @ports
add rule ${TABLE} from_ports iifname "p*" drop
add rule ${TABLE} from_ports iifname "r*" drop
add chain ${TABLE} ${nic.name}
flush chain ${TABLE} ${nic.name}
${rulesOf(nic)
  .map(rule => `add rule ${TABLE} ${nic.name} ${rule}\n`)
  .join('')}add element ${TABLE} ports { "${nic.name}" : goto ${nic.name} }
`,
  )
}

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
`,
  )
}

/** The last rule drops whatever the others do not accept. Pure. */
function rulesOf({ macAddress, addresses, pairs = [], isOpen = false, forwards }: GuardedInterface): string[] {
  if (isOpen) return [UNTAGGED, 'accept']
  const macs = [...new Set([macAddress, ...pairs.map(pair => pair.macAddress)])].join(', ')
  const own4 = widest([...addresses, ...pairs.map(({ address }) => address)].filter(address => !address.includes(':')))
  const own6 = widest([
    ...[...addresses, ...pairs.map(({ address }) => address)].filter(address => address.includes(':')),
    ...[macAddress, ...pairs.map(pair => pair.macAddress)].map(linkLocal),
  ])
  const targets = own6.map(rangeOf).join(', ')
  return [
    UNTAGGED,
    `ether saddr != { ${macs} } drop`,
    ...(own4.length === 0
      ? []
      : [
          // ARP probes, which check that an address is unused before the machine takes it, come from 0.0.0.0.
          `arp saddr ether { ${macs} } arp saddr ip { 0.0.0.0, ${own4.join(', ')} } accept`,
          `ip saddr { ${own4.join(', ')} } accept`,
        ]),
    'icmpv6 type { nd-router-advert, nd-redirect } drop',
    // The target address in a solicitation or advertisement is at byte 8 of the ICMPv6 message.
    `icmpv6 type nd-neighbor-advert @th,64,128 != { ${targets} } drop`,
    `ip6 saddr { ${own6.join(', ')} } accept`,
    `ip6 saddr :: icmpv6 type nd-neighbor-solicit @th,64,128 { ${targets} } accept`,
    'ip6 saddr :: icmpv6 type { nd-router-solicit, mld-listener-report, mld2-listener-report } accept',
    ...(forwards === undefined ? [] : forwardingRules(forwards)),
    'drop',
  ]
}

/** The kernel looks behind a VLAN tag, so other rules would let a tagged frame pass to a VLAN of its choice. */
const UNTAGGED = 'ether type { 8021q, 8021ad } drop'

/** Without what others of the list contain: sets of nft refuse overlaps. */
const widest = (list: readonly string[]): string[] =>
  widestCidrs(list.map(address => (address.includes('/') ? address : `${address}/${address.includes(':') ? 128 : 32}`)))

/** VRRP stays on its network: nobody may send it as an amphora by way of a router. */
function forwardingRules(forwards: 'anything' | readonly string[]): string[] {
  if (forwards === 'anything') return ['meta l4proto 112 drop', 'meta protocol { ip, ip6 } accept']
  const four = forwards.filter(cidr => !cidr.includes(':'))
  const six = forwards.filter(cidr => cidr.includes(':'))
  return [
    'meta l4proto 112 drop',
    ...(four.length === 0 ? [] : [`ip saddr { ${four.join(', ')} } accept`]),
    ...(six.length === 0 ? [] : [`ip6 saddr { ${six.join(', ')} } accept`]),
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
