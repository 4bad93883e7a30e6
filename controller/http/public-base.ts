import { BlockList, isIP } from 'node:net'
import type { Context } from 'koa'

export type PublicBaseOptions = {
  /** Scheme and host as the operator gives them, with a path or without; then no header is asked. */
  publicUrl: string | undefined
  /** Addresses and networks whose X-Forwarded-* headers are believed. */
  trustedProxies: readonly string[]
}

/**
 * How clients reach this server, for links: a URL without a slash at its end, to which the paths of this server are appended.
 * @param mounted the prefix under which the request at hand came in, or ''
 */
export type PublicBase = (ctx: Context, mounted: string) => string

const HOST = /^[A-Za-z0-9._-]+(:\d{1,5})?$|^\[[0-9A-Fa-f:.]+\](:\d{1,5})?$/
const PREFIX = /^(\/[\w.~-]+)+$/

export function createPublicBase({ publicUrl, trustedProxies }: PublicBaseOptions): PublicBase {
  if (publicUrl !== undefined) {
    const base = publicUrl.replace(/\/+$/, '')
    return () => base
  }
  const trusted = blockListOf(trustedProxies)
  return (ctx, mounted) => {
    const believed = trusted !== null && isIn(trusted, ctx.req.socket.remoteAddress ?? '')
    const told = (name: string, pattern: RegExp): string | undefined => {
      // Of several proxies the first one stood before the client.
      const value = believed ? (ctx.get(name).split(',')[0] ?? '').trim().replace(/\/+$/, '') : ''
      return pattern.test(value) ? value : undefined
    }
    const scheme = told('X-Forwarded-Proto', /^https?$/) ?? ctx.protocol
    return `${scheme}://${told('X-Forwarded-Host', HOST) ?? ctx.host}${told('X-Forwarded-Prefix', PREFIX) ?? mounted}`
  }
}

function blockListOf(networks: readonly string[]): BlockList | null {
  if (networks.length === 0) return null
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', length] = network.split('/')
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    list.addSubnet(address, length === undefined ? (family === 'ipv6' ? 128 : 32) : Number(length), family)
  }
  return list
}

/** A socket that serves both families shows IPv4 peers as ::ffff:a.b.c.d. */
function isIn(list: BlockList, peer: string): boolean {
  const address = peer.replace(/^::ffff:(?=\d+\.)/i, '')
  const family = isIP(address)
  return family !== 0 && list.check(address, family === 6 ? 'ipv6' : 'ipv4')
}
