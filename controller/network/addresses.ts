import { createHash } from 'node:crypto'
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

export type IpVersion = 4 | 6
/** An inclusive range of addresses in canonical form. */
export type AddressRange = { start: string; end: string }

/** The address as a number, with its version. Null unless the text is an address without a zone. */
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

/** The canonical form, in which addresses are stored and compared. Null if the text is not an address. */
export function normaliseAddress(text: string): string | null {
  const address = parseAddress(text)
  return address && formatAddress(address.version, address.value)
}

export type Cidr = { version: IpVersion; prefix: number; first: bigint; last: bigint; text: string }

/** Parses a subnet in CIDR notation and clears its host bits. `text` is the canonical form. Null if invalid. */
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

/** The CIDRs that no other one of the list contains, each once. Leaves out what is none. */
export function widestCidrs(list: readonly string[]): string[] {
  const cidrs = list.flatMap(text => parseCidr(text) ?? [])
  const isIn = (inner: Cidr, outer: Cidr) =>
    inner.version === outer.version &&
    inner.prefix > outer.prefix &&
    inner.first >= outer.first &&
    inner.last <= outer.last
  const widest = cidrs.filter(inner => !cidrs.some(outer => isIn(inner, outer)))
  return [...new Set(widest.map(({ text }) => text))]
}

/**
 * The first and last address a host may have. Excludes the network address (in IPv6 the subnet-router anycast address)
 * and the IPv4 broadcast address.
 */
export function hostRange(cidr: Cidr): { first: bigint; last: bigint } {
  if (cidr.last - cidr.first < 2n) return { first: cidr.first, last: cidr.last }
  return { first: cidr.first + 1n, last: cidr.version === 4 ? cidr.last - 1n : cidr.last }
}

export function defaultGateway(cidr: Cidr): string {
  return formatAddress(cidr.version, hostRange(cidr).first)
}

/** All host addresses of the subnet except the gateway, in at most two ranges. */
export function defaultPools(cidr: Cidr, gateway: string | null): AddressRange[] {
  const { first, last } = hostRange(cidr)
  const range = (from: bigint, to: bigint): AddressRange[] =>
    from > to ? [] : [{ start: formatAddress(cidr.version, from), end: formatAddress(cidr.version, to) }]
  const router = gateway !== null && contains(cidr, gateway) ? parseAddress(gateway)!.value : null
  if (router === null || router < first || router > last) return range(first, last)
  return [...range(first, router - 1n), ...range(router + 1n, last)]
}

/** The number of addresses, from the first, to pick from at random: the whole pool, but at most 2^32. */
export function poolSpan({ start, end }: AddressRange): number {
  const size = parseAddress(end)!.value - parseAddress(start)!.value + 1n
  return Number(size < 1n << 32n ? size : 1n << 32n)
}

/** The nth IPv6 /64 of the unique local prefix (RFC 4193) whose global ID derives from the seed. */
export function uniqueLocalSubnet(seed: string, nth: number): string {
  const globalId = BigInt(`0x${createHash('sha256').update(seed).digest('hex').slice(0, 10)}`)
  return `${formatAddress(6, (0xfdn << 120n) | (globalId << 80n) | (BigInt(nth) << 64n))}/64`
}

/**
 * The CIDRs that cover all addresses of a version but these, in order. At most as many as all prefix lengths of the
 * list together.
 */
export function cidrsOutside(version: IpVersion, list: readonly string[]): string[] {
  const bits = version === 4 ? 32 : 128
  const excluded = widestCidrs(list).flatMap(text => parseCidr(text) ?? [])
  const outside: string[] = []
  const cover = (first: bigint, prefix: number): void => {
    const last = first + (1n << BigInt(bits - prefix)) - 1n
    const within = excluded.filter(cidr => cidr.version === version && cidr.first <= last && first <= cidr.last)
    if (within.length === 0) outside.push(`${formatAddress(version, first)}/${prefix}`)
    else if (within.every(cidr => cidr.prefix > prefix)) {
      cover(first, prefix + 1)
      cover(first + (1n << BigInt(bits - prefix - 1)), prefix + 1)
    }
  }
  cover(0n, 0)
  return outside
}
