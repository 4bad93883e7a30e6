/** Names of IP protocols that the rules of security groups may use, as in Neutron. */
const NUMBERS: Readonly<Record<string, number>> = {
  ah: 51,
  dccp: 33,
  egp: 8,
  esp: 50,
  gre: 47,
  hopopt: 0,
  icmp: 1,
  icmpv6: 58,
  igmp: 2,
  ipip: 4,
  'ipv6-encap': 41,
  'ipv6-frag': 44,
  'ipv6-icmp': 58,
  'ipv6-nonxt': 59,
  'ipv6-opts': 60,
  'ipv6-route': 43,
  ospf: 89,
  pgm: 113,
  rsvp: 46,
  sctp: 132,
  tcp: 6,
  udp: 17,
  udplite: 136,
  vrrp: 112,
}

/** Names that mean any protocol. */
const ANY: ReadonlySet<string> = new Set(['any', 'ip'])

export const ICMP = 1
export const ICMP_V6 = 58

/** The protocols that have ports. */
export const WITH_PORTS: ReadonlySet<number> = new Set(
  ['tcp', 'udp', 'udplite', 'sctp', 'dccp'].map(name => NUMBERS[name]!),
)

export const PROTOCOL_NAMES: readonly string[] = [...ANY, ...Object.keys(NUMBERS)]

/**
 * The number of a protocol named by a word or a number.
 * @returns null for any protocol, undefined if there is no such protocol
 */
export function protocolNumber(protocol: string): number | null | undefined {
  const word = protocol.toLowerCase()
  if (ANY.has(word)) return null
  if (Object.hasOwn(NUMBERS, word)) return NUMBERS[word]
  const number = /^\d{1,3}$/.test(word) ? Number(word) : -1
  return number >= 0 && number <= 255 ? number : undefined
}
