import { createServiceSession } from '../../identity/external/service-session.js'
import type { SignedIn } from '../../identity/external/sign-in.js'
import type { Logger } from '../../log/log.js'

/** The user that reads what load balancers refer to. */
export type ServiceUser = {
  /** @throws IdentityUnavailable */
  signedIn: () => Promise<{ token: string; userId: string }>
  /** Drops a token that the key manager rejected: the next call signs in again. */
  discard: (token: string) => void
}

/** Keeps the user signed in. @param signIn signs in at the identity service; throws IdentityUnavailable */
export function createServiceUser(signIn: () => Promise<SignedIn>, log: Logger): ServiceUser {
  let userId = ''
  const session = createServiceSession(async () => {
    const signedIn = await signIn()
    userId = signedIn.document.user.id
    return signedIn
  }, log)
  return {
    signedIn: async () => {
      const token = await session.token()
      return { token, userId }
    },
    discard: session.discard,
  }
}
