import { BlockList, isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import type { Context } from 'koa'

/**
 * @param networks addresses, and networks as `address/prefix length`
 * @returns whether an address is that of a proxy whose X-Forwarded-* headers are trusted
 */
export function createProxyCheck(networks: readonly string[]): (address: string) => boolean {
  if (networks.length === 0) return () => false
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', length] = network.split('/')
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    list.addSubnet(address, length === undefined ? (family === 'ipv6' ? 128 : 32) : Number(length), family)
  }
  return address => {
    const plain = plainAddress(address)
    const family = isIP(plain)
    return family !== 0 && list.check(plain, family === 6 ? 'ipv6' : 'ipv4')
  }
}

/**
 * A dual-stack socket reports IPv4 peers as ::ffff:a.b.c.d; the zone of a link-local address (%eth0) is not
 * part of it.
 */
const plainAddress = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '')

/**
 * @returns a function for the client address of a request: the peer's or, if that is a trusted proxy, the one that it
 *   reports in X-Forwarded-For, and so on; null when the connection is closed. Ignores entries that the client wrote.
 */
export function createClientAddress(trustedProxies: readonly string[]): (ctx: Context) => string | null {
  const isProxy = createProxyCheck(trustedProxies)
  return ctx => {
    const forwarded = ctx.get('X-Forwarded-For').split(',')
    let address = ctx.req.socket.remoteAddress
    while (address !== undefined && isProxy(address)) {
      const before = forwarded.pop()?.trim() ?? ''
      if (isIP(before) === 0) break
      address = before
    }
    return address === undefined ? null : plainAddress(address)
  }
}

/**
 * The source to which limits count an address: itself or, for IPv6, its /64, because one client usually has all
 * of it.
 */
export function sourceOf(address: string | null | undefined): string {
  if (address === null || address === undefined) return 'unknown'
  const plain = plainAddress(address)
  if (isIP(plain) !== 6) return plain
  const network = ipaddr.IPv6.parse(plain).toByteArray().fill(0, 8)
  return `${ipaddr.fromByteArray(network).toString()}/64`
}

/**
 * The /48 of an IPv6 source, the smallest network that a site gets, with 65,536 sources. Other sources stay
 * unchanged.
 */
export function siteOf(source: string): string {
  if (!source.endsWith('/64')) return source
  const [network] = ipaddr.IPv6.parseCIDR(source)
  return `${ipaddr.fromByteArray(network.toByteArray().fill(0, 6)).toString()}/48`
}
