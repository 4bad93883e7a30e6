import type { Context } from 'koa'
import { createProxyCheck } from './trusted-proxies.js'

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
  const isProxy = createProxyCheck(trustedProxies)
  return (ctx, mounted) => {
    const believed = isProxy(ctx.req.socket.remoteAddress ?? '')
    const told = (name: string, pattern: RegExp): string | undefined => {
      // Of several proxies the first one stood before the client.
      const value = believed ? (ctx.get(name).split(',')[0] ?? '').trim().replace(/\/+$/, '') : ''
      return pattern.test(value) ? value : undefined
    }
    const scheme = told('X-Forwarded-Proto', /^https?$/) ?? ctx.protocol
    return `${scheme}://${told('X-Forwarded-Host', HOST) ?? ctx.host}${told('X-Forwarded-Prefix', PREFIX) ?? mounted}`
  }
}
