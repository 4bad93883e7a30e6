import type { Place } from '../process/fair-queue.js'
import type { AccessRule } from './access-rules.js'

export type Named = { id: string; name: string }

/** Who makes a request, as its token says. The same whether our own identity service or a real Keystone issued the token. */
export type Caller = {
  user: Named & { domain: Named }
  /** Null when the token is not scoped to a project. */
  project: (Named & { domain: Named }) | null
  /** Set when the token is scoped to a domain. */
  domain: Named | null
  /** True when the token is scoped to the system. */
  system: boolean
  /** Role names in lower case, implied roles included. */
  roles: readonly string[]
  expiresAt: Date
  /** Set when an application credential allows only these requests; `authenticate` enforces them. */
  accessRules?: readonly AccessRule[]
  /** The service that sent the request on behalf of its user, when it showed a token of its own. */
  service?: Named & { domain: Named }
}

export type ValidateOptions = {
  /** Also a token that ended less than 48 h ago: for requests that a service sends on behalf of its user. */
  allowExpired?: boolean
  /** For whom it counts where many wait. */
  place?: Place
}

/**
 * @returns null when the token is unknown, expired or revoked
 * @throws ApiError 503 when that cannot be told at the moment
 */
export type TokenValidator = (token: string, options?: ValidateOptions) => Promise<Caller | null>
