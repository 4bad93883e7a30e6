import { BlockList, isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import type { Context } from 'koa'

/**
 * @param networks addresses, and networks as `address/prefix length`
 * @returns whether an address is that of a proxy whose X-Forwarded-* headers are believed
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

/** A socket that serves both families shows IPv4 peers as ::ffff:a.b.c.d; the interface of a local address (%eth0) is no part of it. */
const plainAddress = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '')

/**
 * @returns the address from which a request comes: the peer's, or when that is a trusted proxy what it tells in X-Forwarded-For, and so on; null
 *   when the connection is gone. Nothing that a client itself writes there counts.
 */
export function createClientAddress(trustedProxies: readonly string[]): (ctx: Context) => string | null {
  const isProxy = createProxyCheck(trustedProxies)
  return ctx => {
    const told = ctx.get('X-Forwarded-For').split(',')
    let address = ctx.req.socket.remoteAddress
    while (address !== undefined && isProxy(address)) {
      const before = told.pop()?.trim() ?? ''
      if (isIP(before) === 0) break
      address = before
    }
    return address === undefined ? null : plainAddress(address)
  }
}

/** Whom an address counts for where addresses have shares: itself, or its /64, since whoever has one IPv6 address has all of those. */
export function sourceOf(address: string | null | undefined): string {
  if (address === null || address === undefined) return 'unknown'
  const plain = plainAddress(address)
  if (isIP(plain) !== 6) return plain
  const network = ipaddr.IPv6.parse(plain).toByteArray().fill(0, 8)
  return `${ipaddr.fromByteArray(network).toString()}/64`
}

/** Of an IPv6 source the /48 that it is part of, the least that a site is given: who has it has 65,536 sources. Any other stands for itself. */
export function siteOf(source: string): string {
  if (!source.endsWith('/64')) return source
  const [network] = ipaddr.IPv6.parseCIDR(source)
  return `${ipaddr.fromByteArray(network.toByteArray().fill(0, 6)).toString()}/48`
}
