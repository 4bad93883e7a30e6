import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

export type IpVersion = 4 | 6
/** First and last address of a stretch, both included, as canonical text. */
export type AddressRange = { start: string; end: string }

/** An address as a number with its version; null when the text is not one plain address. */
export function parseAddress(text: string): { version: IpVersion; value: bigint } | null {
  const version = isIP(text)
  if (version === 0 || text.includes('%')) return null
  const bytes = ipaddr.parse(text).toByteArray()
  return { version: version === 4 ? 4 : 6, value: bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n) }
}

export function formatAddress(version: IpVersion, value: bigint): string {
  const length = version === 4 ? 4 : 16
  const bytes = Array.from({ length }, (_, index) => Number((value >> BigInt(8 * (length - 1 - index))) & 0xffn))
  const address = ipaddr.fromByteArray(bytes)
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString()
}

/** The one spelling of an address that is stored and compared; null when it is none. */
export function normaliseAddress(text: string): string | null {
  const address = parseAddress(text)
  return address && formatAddress(address.version, address.value)
}

export type Cidr = { version: IpVersion; prefix: number; first: bigint; last: bigint; text: string }

/** A subnet in CIDR notation; bits below the prefix are cut off, `text` is the canonical form. Null when it is none. */
export function parseCidr(text: string): Cidr | null {
  const [, base, length] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? []
  const address = base === undefined ? null : parseAddress(base)
  if (address === null) return null
  const bits = address.version === 4 ? 32 : 128
  const prefix = Number(length)
  if (prefix > bits) return null
  const size = 1n << BigInt(bits - prefix)
  const first = (address.value / size) * size
  return {
    version: address.version,
    prefix,
    first,
    last: first + size - 1n,
    text: `${formatAddress(address.version, first)}/${prefix}`,
  }
}

export function contains(cidr: Cidr, address: string): boolean {
  const parsed = parseAddress(address)
  return parsed !== null && parsed.version === cidr.version && parsed.value >= cidr.first && parsed.value <= cidr.last
}

/** First and last address that a machine may have: not the network's own (in IPv6 the routers' anycast) nor the broadcast address. */
export function hostRange(cidr: Cidr): { first: bigint; last: bigint } {
  const wide = cidr.last - cidr.first >= 2n
  if (!wide) return { first: cidr.first, last: cidr.last }
  return { first: cidr.first + 1n, last: cidr.version === 4 ? cidr.last - 1n : cidr.last }
}

export function defaultGateway(cidr: Cidr): string {
  return formatAddress(cidr.version, hostRange(cidr).first)
}

/** All host addresses of the subnet but the gateway, in one or two stretches. */
export function defaultPools(cidr: Cidr, gateway: string | null): AddressRange[] {
  const { first, last } = hostRange(cidr)
  const stretch = (from: bigint, to: bigint): AddressRange[] =>
    from > to ? [] : [{ start: formatAddress(cidr.version, from), end: formatAddress(cidr.version, to) }]
  const middle = gateway !== null && contains(cidr, gateway) ? parseAddress(gateway)!.value : null
  if (middle === null || middle < first || middle > last) return stretch(first, last)
  return [...stretch(first, middle - 1n), ...stretch(middle + 1n, last)]
}

/** Addresses of a stretch from which one is chosen at random: all of it, in IPv6 the first 2^32. */
export function spanOf({ start, end }: AddressRange): number {
  const size = parseAddress(end)!.value - parseAddress(start)!.value + 1n
  return Number(size < 1n << 32n ? size : 1n << 32n)
}
