import type { Logger } from '../../log/log.js'
import { ServiceUserRefused } from './identity-unavailable.js'
import { type SignedIn, VALIDATING_ROLES } from './sign-in.js'

export type ServiceSession = {
  /** A token of the service user that is not about to expire. @throws IdentityUnavailable */
  token: () => Promise<string>
  /** Keystone did not accept this token: the next call signs in again. */
  discard: (token: string) => void
}

/** A token is renewed this long before it expires, or after three quarters of a short life. */
const RENEW_BEFORE_MS = 120_000

const FIRST_PAUSE_MS = 5_000
const MAX_PAUSE_MS = 60_000

type Held = { token: string; renewAt: number; expiresAt: number }

/**
 * Keeps the service user signed in. Concurrent callers share one sign-in. Rejected credentials are tried again only
 * after a pause, since Keystone may lock the user out.
 */
export function createServiceSession(signIn: () => Promise<SignedIn>, log: Logger): ServiceSession {
  let held: Held | null = null
  let signingIn: Promise<Held> | null = null
  let refused: { error: ServiceUserRefused; until: number; pause: number } | null = null

  const renew = async (): Promise<Held> => {
    if (refused !== null && performance.now() < refused.until) throw refused.error
    const started = performance.now()
    try {
      const { token, document } = await signIn()
      refused = null
      if (!document.roles?.some(({ name }) => VALIDATING_ROLES.includes(name.toLowerCase()))) {
        log.warn(`The service user at Keystone has none of the roles ${VALIDATING_ROLES.join(', ')}`)
      }
      // Computed from Keystone's own times: this machine's clock may differ.
      const life = document.expires_at.getTime() - document.issued_at.getTime()
      held = { token, renewAt: started + Math.max(life - RENEW_BEFORE_MS, life * 0.75), expiresAt: started + life }
      return held
    } catch (error) {
      if (error instanceof ServiceUserRefused) {
        const pause = Math.min((refused?.pause ?? FIRST_PAUSE_MS / 2) * 2, MAX_PAUSE_MS)
        refused = { error, until: performance.now() + pause, pause }
      }
      throw error
    }
  }
  const renewOnce = (): Promise<Held> => {
    signingIn ??= renew().finally(() => {
      signingIn = null
    })
    return signingIn
  }

  return {
    token: async () => {
      const now = performance.now()
      if (held !== null && now < held.renewAt) return held.token
      const old = held
      try {
        return (await renewOnce()).token
      } catch (error) {
        if (old !== null && old === held && now < old.expiresAt) return old.token
        throw error
      }
    },
    discard: token => {
      if (held?.token === token) held = null
    },
  }
}
