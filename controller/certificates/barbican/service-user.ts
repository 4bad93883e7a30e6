import { createServiceSession } from '../../identity/external/service-session.js'
import type { SignedIn } from '../../identity/external/sign-in.js'
import type { Logger } from '../../log/log.js'

/** The user as whom our services read what load balancers refer to. */
export type ServiceUser = {
  /** @throws IdentityAway */
  signedIn: () => Promise<{ token: string; userId: string }>
  /** The key manager did not accept this token: the next call signs in anew. */
  discard: (token: string) => void
}

/** Keeps the user signed in. @param signIn at the identity service; throws IdentityAway */
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
