import type { AccessRule } from '../access-rules.js'
import type { Caller, Named } from '../caller.js'

/**
 * A token as it is stored, and all that services learn about a caller: the `token` object of an answer without the
 * catalogue, and with the access rules beside the application credential.
 */
export type TokenDocument = {
  methods: string[]
  user: Named & { domain: Named; password_expires_at: null }
  audit_ids: string[]
  /** UTC, microseconds, `Z`: 2026-11-21T07:47:10.000000Z */
  issued_at: string
  expires_at: string
  project?: Named & { domain: Named }
  is_domain?: false
  domain?: Named
  system?: { all: true }
  /** Implied roles included. Absent if the token is unscoped. */
  roles?: Named[]
  application_credential?: Named & { restricted: boolean }
  access_rules?: AccessRule[]
}

/** The part of a token that identifies its bearer. */
export type Bearer = Pick<TokenDocument, 'project' | 'domain' | 'system' | 'roles' | 'access_rules'> & {
  user: Named & { domain: Named }
}

/** The caller that a token represents. */
export function callerFrom(document: Bearer, expiresAt: Date): Caller {
  const { id, name, domain } = document.user
  return {
    user: { id, name, domain },
    project: document.project ?? null,
    domain: document.domain ?? null,
    system: document.system !== undefined,
    roles: roleNames(document),
    expiresAt,
    ...(document.access_rules !== undefined && { accessRules: document.access_rules }),
  }
}

/** Role names in lower case, as policies compare them. */
export function roleNames(document: Pick<TokenDocument, 'roles'>): string[] {
  return (document.roles ?? []).map(role => role.name.toLowerCase())
}

/** A time in the format of token documents. */
export function isoTime(time: Date): string {
  return time.toISOString().replace(/\.(\d{3})Z$/, '.$1000Z')
}
