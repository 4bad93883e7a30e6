import type { Place } from '../process/fair-queue.js'
import type { AccessRule } from './access-rules.js'

export type Named = { id: string; name: string }

/** The caller of a request, according to its token. The same for the embedded identity service and a real Keystone. */
export type Caller = {
  user: Named & { domain: Named }
  /** Null unless the token is scoped to a project. */
  project: (Named & { domain: Named }) | null
  /** Null unless the token is scoped to a domain. */
  domain: Named | null
  /** Whether the token is scoped to the system. */
  system: boolean
  /** Role names in lower case, implied roles included. */
  roles: readonly string[]
  expiresAt: Date
  /** Set if an application credential allows only these requests. The authenticator enforces them. */
  accessRules?: readonly AccessRule[]
  /** The service that sent the request on behalf of the user, if it presented its own token. */
  service?: Named & { domain: Named }
}

export type ValidateOptions = {
  /** Accept a token that expired less than 48 h ago: for requests that a service sends on behalf of a user. */
  allowExpired?: boolean
  /** Where the validation waits in fair queues. */
  place?: Place
}

/**
 * @returns null if the token is unknown, expired or revoked
 * @throws ApiError 503 if the token cannot be validated at the moment
 */
export type TokenValidator = (token: string, options?: ValidateOptions) => Promise<Caller | null>
