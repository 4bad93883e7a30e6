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
}

/** @returns null when the token is unknown, expired or revoked */
export type TokenValidator = (token: string) => Promise<Caller | null>
