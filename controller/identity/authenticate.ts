import type { Context } from 'koa'
import { ApiError } from '../http/errors.js'
import { createClientAddress, sourceOf } from '../http/trusted-proxies.js'
import type { Place } from '../process/fair-queue.js'
import { isAllowedBy } from './access-rules.js'
import type { Caller, TokenValidator, ValidateOptions } from './caller.js'
import { createTokenTurns } from './tokens/token-turns.js'

export type AuthenticatorOptions = {
  validate: TokenValidator
  /** Proxies that say where a request comes from. */
  trustedProxies: readonly string[]
  /** The public identity URL (ending in /v3), named in the WWW-Authenticate header. */
  identityUrl: string
  /** Our type in the catalogue, which access rules name. Without it a token that has access rules is refused. */
  serviceType?: string
}

/** What the bearer of a token in X-Service-Token must be, in lower case. */
const SERVICE_ROLE = 'service'

/**
 * Finds out who asks, or refuses with 401. A request that a service sends on behalf of its user carries the service's own token as well, in
 * X-Service-Token: the user's may then have ended meanwhile, and its access rules do not count. Identity headers that a client might forge
 * are never read anywhere, so none need be stripped.
 * @returns a function of the request and of its path, which access rules name
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
    if (service === null && !mayAsk(caller, { service: serviceType, method: ctx.method, path })) throw refuse()
    return service === null ? caller : { ...caller, service: service.user }
  }
}

/**
 * The token of the caller, '' when there is none. Once the caller is known it is good for requests to other services in the caller's name.
 * It must not be stored or logged.
 */
export const tokenIn = (header: (name: string) => string): string =>
  header('X-Auth-Token').trim() || header('X-Storage-Token').trim()

const isService = (caller: Caller | null): boolean =>
  caller !== null && isCurrent(caller) && caller.roles.includes(SERVICE_ROLE)

const mayAsk = (caller: Caller, line: { service: string; method: string; path: string }): boolean =>
  isCurrent(caller) && (caller.accessRules === undefined || isAllowedBy(caller.accessRules, line))

const isCurrent = ({ expiresAt }: Caller): boolean => expiresAt.getTime() > Date.now()

/** Whom the requests of a caller count for. */
export const placeOfCaller = ({ project, user }: Caller): Place => [
  project === null ? `user ${user.id}` : `project ${project.id}`,
  user.id,
]
