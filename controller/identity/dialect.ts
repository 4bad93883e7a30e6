import { type Answer, jsonAnswer } from '../api/answer.js'
import type { Call, Location } from '../api/call.js'
import type { Dialect } from '../api/dialect.js'
import { type ProtectedRoute, routesFor } from '../api/route.js'
import { objectOf, type Parameter, type Schema } from '../api/schema.js'
import type { Database } from '../database/connection.js'
import { isUniqueViolation, sqlState } from '../database/transaction.js'
import { ApiError, badRequest, conflict, forbidden } from '../http/errors.js'
import { createClientAddress, sourceOf } from '../http/trusted-proxies.js'
import type { Turns } from '../http/turns.js'
import type { Place } from '../process/fair-queue.js'
import { isAllowedBy } from './access-rules.js'
import { locate } from './discovery.js'
import { isStorable, parse } from './json.js'
import type { Logins } from './login/logins.js'
import type { IdentitySettings } from './options.js'
import type { Rule } from './policy.js'
import type { TokenLimits } from './tokens/issue.js'
import { unauthenticated } from './tokens/proof.js'
import { findToken, type StoredToken, tokenHash } from './tokens/store.js'
import type { TokenTurns } from './tokens/token-turns.js'

/** What the handlers of this API work with. */
export type Service = {
  database: Database
  logins: Logins
  turns: Turns
  tokenTurns: TokenTurns
  limits: TokenLimits
  /** 32 bytes that encrypt what users keep under /v3/credentials; without them that resource answers 501. */
  credentialKey: Buffer | null
  /** Removes tokens that have ended, once in a while; nobody waits for it. */
  purgeTokens: () => void
}

export type IdentityCall<Body = unknown> = Call<StoredToken, Body>
export type IdentityRoute = ProtectedRoute<Service, StoredToken, Rule>

export const { route, openRoute } = routesFor<Service, StoredToken, Rule>()

/** As large as Keystone takes them. */
const MOST_BODY_BYTES = 114_688

/** The Identity API among ours: Keystone's errors, rules on tokens and paths, and hrefs that follow the name by which a client came. */
export function identityDialect(
  { public_url, trusted_proxies }: IdentitySettings,
  service: Pick<Service, 'database' | 'tokenTurns'>,
): Dialect<Service, StoredToken, Rule> {
  const addressOf = createClientAddress(trusted_proxies)
  const publicUrl = public_url === undefined ? null : new URL(public_url)
  return {
    name: 'identity',
    trustedProxies: trusted_proxies,
    caseSensitive: false,
    headIsGet: true,
    // Keystone has no 415.
    body: { maxBytes: MOST_BODY_BYTES, statuses: { 415: 400 } },
    locate: (ctx, plain) => {
      const { base, path } = locate(publicUrl, plain.base(), plain.path)
      ctx.set('Vary', 'X-Auth-Token')
      for (const value of Object.values(ctx.query).flat()) {
        if (!isStorable(value ?? '')) throw badRequest('The query holds characters that cannot be stored.')
      }
      return { path, written: path, base: () => base }
    },
    authenticate: async (ctx, path) => {
      const text = ctx.get('X-Auth-Token').trim()
      const token = text === '' ? null : await tokenFinder(service, sourceOf(addressOf(ctx)))(text)
      const rules = token?.document.access_rules
      const line = { service: 'identity', method: ctx.method, path }
      if (token === null || (rules !== undefined && !isAllowedBy(rules, line))) throw unauthenticated()
      return token
    },
    hidesPath: () => false,
    placeOf: token => token && placeOf(token),
    authorise: (_service, { caller, params, route }, allows) => {
      if (!Object.values(params).every(isStorable)) throw badRequest('The path holds characters that cannot be stored.')
      if (allows(caller.document, params)) return
      throw forbidden(`You are not authorized to perform the requested action: ${route.method} ${route.path}.`)
    },
    validate: parse,
    translate,
    presentFault: ({ status, title, message }) => ({ error: { code: status, message, title } }),
  }
}

function translate(error: unknown, { base }: Location): unknown {
  if (error instanceof ApiError && error.status === 401) {
    return new ApiError(401, error.message, { ...error.headers, 'WWW-Authenticate': `Keystone uri="${base()}/v3"` })
  }
  if (isUniqueViolation(error)) return conflict('Conflict occurred: such an object exists already.')
  if (sqlState(error) !== '23503') return error
  return conflict('Conflict occurred: an object that the request refers to was just removed.')
}

const placeOf = ({ document }: StoredToken): Place => [`user ${document.user.id}`, '']

/** Looks a token up, by its text, in its turn. */
export const tokenFinder =
  ({ database, tokenTurns }: Pick<Service, 'database' | 'tokenTurns'>, source: string) =>
  (token: string): Promise<StoredToken | null> =>
    tokenTurns.check({ token, source }, () => findToken(database, tokenHash(token)), placeOf)

/** The URL of a request with its query, for its `links`. */
export const selfOf = ({ url, queryString }: Pick<IdentityCall, 'url' | 'queryString'>): string =>
  queryString === '' ? url : `${url}?${queryString}`

/** A collection as Keystone answers it; it has no further pages. */
export function listed(call: IdentityCall, plural: string, items: readonly unknown[]): Answer {
  return jsonAnswer(200, { [plural]: items, links: { self: selfOf(call), previous: null, next: null } })
}

/** The form of such an answer. */
export const listForm = (plural: string, item: Schema = { type: 'object' }): Schema =>
  objectOf({ [plural]: { type: 'array', items: item }, links: { type: 'object' } })

/** The form of an answer with one object. */
export const oneForm = (singular: string, item: Schema = { type: 'object' }): Schema => objectOf({ [singular]: item })

/** A query parameter in descriptions. */
export const queryParameter = (name: string, description: string): Parameter => ({
  name,
  in: 'query',
  description,
  schema: { type: 'string' },
})
