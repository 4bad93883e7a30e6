import type { Bindings } from '../../../controller/bindings/bindings.js'
import type { Challenges } from '../../../controller/bindings/challenges.js'
import { createChannelCertificate, type KeyChannelAccess } from '../../../controller/key-channel/keys.js'

/** For load balancers that use no certificates. */
export const NO_BINDINGS: Bindings = {
  bind: async tree => ({ binding: tree, isAway: false }),
  lend: async () => null,
  settle: async () => undefined,
  release: async () => undefined,
  tend: async () => 0,
}

export const NO_CHALLENGES: Challenges = { tend: async () => 0 }

/** Access to a key channel that nobody serves. */
export const NO_KEY_CHANNEL: KeyChannelAccess = {
  endpoints: [],
  certificate: createChannelCertificate().certificate,
  secret: Buffer.alloc(32, 7),
}
