import type { Context, Middleware } from 'koa'
import { ApiError } from '../http/errors.js'
import { isAllowedBy } from './access-rules.js'
import type { Caller, TokenValidator } from './caller.js'

export type AuthenticateOptions = {
  validate: TokenValidator
  /** The public identity URL (ending in /v3), named in the WWW-Authenticate header. */
  identityUrl: string
  /** Paths that need no token, such as version documents. */
  isOpen?: (path: string) => boolean
  /** Our type in the catalogue, which access rules name. Without it a token that has access rules is refused. */
  serviceType?: string
}

/**
 * Puts the caller of a request into `ctx.state.caller`, or answers 401. Identity headers that a client might forge are never
 * read anywhere, so none need be stripped.
 */
export function authenticate({
  validate,
  identityUrl,
  isOpen = () => false,
  serviceType = '',
}: AuthenticateOptions): Middleware {
  return async (ctx, next) => {
    if (!isOpen(ctx.path)) {
      const token = ctx.get('X-Auth-Token').trim()
      const caller = token === '' ? null : await validate(token)
      if (
        caller === null ||
        caller.expiresAt.getTime() <= Date.now() ||
        (caller.accessRules !== undefined &&
          !isAllowedBy(caller.accessRules, { service: serviceType, method: ctx.method, path: ctx.path }))
      ) {
        throw new ApiError(401, 'The request you have made requires authentication.', {
          'WWW-Authenticate': `Keystone uri="${identityUrl}"`,
        })
      }
      ctx.state.caller = caller
    }
    await next()
  }
}

/** The caller that `authenticate` found. */
export function callerOf(ctx: Context): Caller {
  return ctx.state.caller as Caller
}
