import ipaddr from 'ipaddr.js'

/**
 * Ranges that no validation ever contacts and no certificate names, whatever network they are on. The last four hold
 * IPv4 addresses in IPv6 ones: what they lead to depends on who translates.
 */
const FORBIDDEN: ReadonlySet<string> = new Set([
  'unspecified',
  'broadcast',
  'multicast',
  'loopback',
  'linkLocal',
  'ipv4Mapped',
  '6to4',
  'teredo',
  'rfc6145',
  'rfc6052',
])

/** The canonical form: an IPv4-mapped IPv6 address becomes IPv4. Null unless it is an address without a zone. */
export function canonicalAddress(text: string): string | null {
  if (text.includes('%') || !ipaddr.isValid(text)) return null
  if (ipaddr.IPv4.isValid(text) && !ipaddr.IPv4.isValidFourPartDecimal(text)) return null
  const address = ipaddr.process(text)
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString()
}

/** Whether an address is one that only this machine, its link or nobody has. @param address canonical */
export const isForbiddenAddress = (address: string): boolean => FORBIDDEN.has(ipaddr.process(address).range())

/** Whether an address is on a network, `address` or `address/prefix length`. @param address canonical */
export function isOnNetwork(address: string, network: string): boolean {
  const [base = '', length] = network.split('/')
  const [parsed, start] = [ipaddr.process(address), ipaddr.process(base)]
  if (parsed.kind() !== start.kind()) return false
  return parsed.match(start, length === undefined ? start.toByteArray().length * 8 : Number(length))
}
