import type { Context } from 'koa'
import { ApiError } from './errors.js'
import { createProxyCheck } from './trusted-proxies.js'

export type PublicBaseOptions = {
  /** Scheme and host that the operator configured, optionally with a path. Takes precedence over all headers. */
  publicUrl: string | undefined
  /** Addresses and networks of proxies whose X-Forwarded-* headers are trusted. */
  trustedProxies: readonly string[]
}

/**
 * Returns the URL by which clients reach this server, for links: without a trailing slash, so that paths can be
 * appended.
 * @param mounted the prefix under which the request arrived, or ''
 */
export type PublicBase = (ctx: Context, mounted: string) => string

const HOST = /^[A-Za-z0-9._-]{1,255}(:\d{1,5})?$|^\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?$/

/** @throws ApiError 400 for no or an invalid Host, or for several: a proxy and this server could choose different ones */
export function requireOneHost(ctx: Context): void {
  const count = ctx.req.rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'host').length
  if (count > 1) throw new ApiError(400, 'The request has several Host headers.')
  if (count === 0 && ctx.req.httpVersion === '1.1') throw new ApiError(400, 'The request has no Host header.')
  const host = ctx.get('Host')
  if (host !== '' && !HOST.test(host)) throw new ApiError(400, 'The Host header is not valid.')
}

/** Host and port from the Host header, or the local address of the connection: HTTP/1.0 needs no Host. */
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
    const isTrusted = isProxy(ctx.req.socket.remoteAddress ?? '')
    const forwarded = (name: string, pattern: RegExp): string | undefined => {
      // With several proxies, the first value comes from the one next to the client.
      const value = isTrusted ? (ctx.get(name).split(',')[0] ?? '').trim().replace(/\/+$/, '') : ''
      return pattern.test(value) ? value : undefined
    }
    const scheme = forwarded('X-Forwarded-Proto', /^https?$/) ?? ctx.protocol
    const host = forwarded('X-Forwarded-Host', HOST) ?? hostOf(ctx)
    return `${scheme}://${host}${forwarded('X-Forwarded-Prefix', PREFIX) ?? mounted}`
  }
}
