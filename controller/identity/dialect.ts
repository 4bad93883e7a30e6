import { type Answer, jsonAnswer } from '../api/answer.js'
import type { Call, Location } from '../api/call.js'
import type { Dialect } from '../api/dialect.js'
import { type ProtectedRoute, routesFor } from '../api/route.js'
import { objectOf, type Parameter, type Schema } from '../api/schema.js'
import type { Database } from '../database/connection.js'
import { isUniqueViolation, sqlState } from '../database/transaction.js'
import { ApiError, conflict, forbidden, notFound } from '../http/errors.js'
import { createClientAddress, sourceOf } from '../http/trusted-proxies.js'
import type { Turns } from '../http/turns.js'
import type { Place } from '../process/fair-queue.js'
import { isAllowedBy } from './access-rules.js'
import { locate } from './discovery.js'
import { parse, requireStorable } from './json.js'
import type { Logins } from './login/logins.js'
import { partNotOffered } from './not-offered.js'
import type { IdentitySettings } from './options.js'
import type { Rule } from './policy.js'
import type { TokenLimits } from './tokens/issue.js'
import { unauthenticated } from './tokens/proof.js'
import { findToken, type StoredToken, tokenHash } from './tokens/store.js'
import type { TokenTurns } from './tokens/token-turns.js'

/** What the route handlers use. */
export type Service = {
  database: Database
  logins: Logins
  turns: Turns
  tokenTurns: TokenTurns
  limits: TokenLimits
  /** 32 bytes that encrypt the credentials under /v3/credentials. Without them that resource answers 501. */
  credentialKey: Buffer | null
  /** Starts a purge of expired tokens from time to time, without waiting for it. */
  purgeTokens: () => void
}

export type IdentityCall<Body = unknown> = Call<StoredToken, Body>
export type IdentityRoute = ProtectedRoute<Service, StoredToken, Rule>

export const { route, openRoute } = routesFor<Service, StoredToken, Rule>()

/** Keystone's limit. */
const MAX_BODY_BYTES = 114_688

/** Keystone's dialect: its errors, rules over tokens and paths, and hrefs with the host name that the client used. */
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
    // Keystone answers 400, not 415.
    body: { maxBytes: MAX_BODY_BYTES, statuses: { 415: 400 } },
    locate: (ctx, plain) => {
      const { base, path } = locate(publicUrl, plain.base(), plain.path)
      ctx.set('Vary', 'X-Auth-Token')
      requireStorable(
        Object.values(ctx.query).flatMap(value => value ?? []),
        'query',
      )
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
      requireStorable(Object.values(params), 'path')
      if (allows(caller.document, params)) return
      throw forbidden(`You are not authorized to perform the requested action: ${route.method} ${route.path}.`)
    },
    validate: parse,
    unrouted: async (_service, { path }) => {
      const part = partNotOffered(path)
      if (part !== undefined) throw notFound(`This identity service does not offer ${part}.`)
    },
    translate,
    presentFault: ({ status, title, message }) => ({ error: { code: status, message, title } }),
  }
}

function translate(error: unknown, { base }: Location): unknown {
  if (error instanceof ApiError && error.status === 401) {
    return new ApiError(401, error.message, { ...error.headers, 'WWW-Authenticate': `Keystone uri="${base()}/v3"` })
  }
  if (isUniqueViolation(error)) return conflict('Conflict occurred: such an object already exists.')
  if (sqlState(error) !== '23503') return error
  return conflict('Conflict occurred: an object that the request refers to was deleted concurrently.')
}

const placeOf = ({ document }: StoredToken): Place => [`user ${document.user.id}`, '']

/** Looks up a token by its text, in its turn. */
export const tokenFinder =
  ({ database, tokenTurns }: Pick<Service, 'database' | 'tokenTurns'>, source: string) =>
  (token: string): Promise<StoredToken | null> =>
    tokenTurns.check({ token, source }, () => findToken(database, tokenHash(token)), placeOf)

/** The request's URL with its query, for `links`. */
export const selfUrl = ({ url, queryString }: Pick<IdentityCall, 'url' | 'queryString'>): string =>
  queryString === '' ? url : `${url}?${queryString}`

/** An answer with a whole collection, in Keystone's form. */
export function listAnswer(call: IdentityCall, plural: string, items: readonly unknown[]): Answer {
  return jsonAnswer(200, { [plural]: items, links: { self: selfUrl(call), previous: null, next: null } })
}

/** The form of an answer with a collection. */
export const listForm = (plural: string, item: Schema = { type: 'object' }): Schema =>
  objectOf({ [plural]: { type: 'array', items: item }, links: { type: 'object' } })

/** The form of an answer with one object. */
export const oneForm = (singular: string, item: Schema = { type: 'object' }): Schema => objectOf({ [singular]: item })

/** A query parameter in the API description. */
export const queryParameter = (name: string, description: string): Parameter => ({
  name,
  in: 'query',
  description,
  schema: { type: 'string' },
})
