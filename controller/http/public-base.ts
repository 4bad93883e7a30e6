import type { Context } from 'koa'
import { ApiError } from './errors.js'
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

const HOST = /^[A-Za-z0-9._-]{1,255}(:\d{1,5})?$|^\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?$/

/** @throws ApiError 400 for a request whose Host is none, or that names several: a proxy and we could take different ones */
export function requireOneHost(ctx: Context): void {
  const count = ctx.req.rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'host').length
  if (count > 1) throw new ApiError(400, 'The request has several Host headers.')
  const host = ctx.get('Host')
  if (host !== '' && !HOST.test(host)) throw new ApiError(400, 'The Host header is not valid.')
}

/** Host and port as the client named them, or where its connection arrived: HTTP/1.0 needs no Host. */
function hostOf(ctx: Context): string {
  if (ctx.host !== '') return ctx.host
  const { localAddress = '', localPort } = ctx.req.socket
  return `${localAddress.includes(':') ? `[${localAddress}]` : localAddress}:${localPort}`
}
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
    return `${scheme}://${told('X-Forwarded-Host', HOST) ?? hostOf(ctx)}${told('X-Forwarded-Prefix', PREFIX) ?? mounted}`
  }
}
