import type { Context } from 'koa'
import { ApiError } from '../http/errors.js'
import { createClientAddress, sourceOf } from '../http/trusted-proxies.js'
import type { Place } from '../process/fair-queue.js'
import { isAllowedBy } from './access-rules.js'
import type { Caller, TokenValidator, ValidateOptions } from './caller.js'
import { createTokenTurns } from './tokens/token-turns.js'

export type AuthenticatorOptions = {
  validate: TokenValidator
  /** Proxies trusted to name the client's address. */
  trustedProxies: readonly string[]
  /** The public identity URL (ending in /v3), named in the WWW-Authenticate header. */
  identityUrl: string
  /** This service's type in the catalogue, for access rules. Without it, tokens with access rules are refused. */
  serviceType?: string
}

/** The role that a token in X-Service-Token must have, in lower case. */
const SERVICE_ROLE = 'service'

/**
 * Identifies the caller, or refuses with 401. A service that acts on behalf of a user also sends its own token, in
 * X-Service-Token. The user's token may then have expired, and its access rules do not apply. Identity headers that a
 * client might forge are never read, so none need to be stripped.
 * @returns a function of the request and its path, which access rules match
 */
export function createAuthenticator({
  validate,
  trustedProxies,
  identityUrl,
  serviceType = '',
}: AuthenticatorOptions): (ctx: Context, path: string) => Promise<Caller> {
  const { check } = createTokenTurns()
  const addressOf = createClientAddress(trustedProxies)
  const refuse = () =>
    new ApiError(401, 'The request you have made requires authentication.', {
      'WWW-Authenticate': `Keystone uri="${identityUrl}"`,
    })

  return async (ctx, path) => {
    const find = (token: string, options?: ValidateOptions) =>
      check({ token, source: sourceOf(addressOf(ctx)) }, place => validate(token, { ...options, place }), placeOfCaller)
    const serviceToken = ctx.get('X-Service-Token').trim()
    const service = serviceToken === '' ? null : await find(serviceToken)
    if (serviceToken !== '' && !isService(service)) throw refuse()
    const token = tokenIn(name => ctx.get(name))
    const caller = token === '' ? null : await find(token, { allowExpired: service !== null })
    if (caller === null) throw refuse()
    if (service === null && !isPermitted(caller, { service: serviceType, method: ctx.method, path })) throw refuse()
    return service === null ? caller : { ...caller, service: service.user }
  }
}

/**
 * The caller's token; '' without one. After authentication it may be used for requests to other services in the
 * caller's name. Never store or log it.
 */
export const tokenIn = (header: (name: string) => string): string =>
  header('X-Auth-Token').trim() || header('X-Storage-Token').trim()

const isService = (caller: Caller | null): boolean =>
  caller !== null && isCurrent(caller) && caller.roles.includes(SERVICE_ROLE)

const isPermitted = (caller: Caller, line: { service: string; method: string; path: string }): boolean =>
  isCurrent(caller) && (caller.accessRules === undefined || isAllowedBy(caller.accessRules, line))

const isCurrent = ({ expiresAt }: Caller): boolean => expiresAt.getTime() > Date.now()

/** The place in fair queues of a caller's requests: the lane is the project, or the user without one. */
export const placeOfCaller = ({ project, user }: Caller): Place => [
  project === null ? `user ${user.id}` : `project ${project.id}`,
  user.id,
]
