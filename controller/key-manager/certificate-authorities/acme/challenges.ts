import { createHash } from 'node:crypto'
import type { ChallengeType } from './options.js'

/** A challenge that is to be served while the CA validates it. */
export type Challenge = {
  /** The pending certificate that it is for. */
  requestId: string
  projectId: string
  type: ChallengeType
  /** A host name without wildcard, or an address. */
  identifier: string
  token: string
  keyAuthorization: string
  /** SHA-256 of the key authorization: the content of tls-alpn-01 and, in base64url, of dns-01. */
  digest: Buffer
  expiresAt: Date
}

/** Serves challenges of one type. */
export type ChallengePublisher = {
  /**
   * Resolves when the challenge is being served; safe to repeat.
   * @throws NotServed if it is not served yet, or cannot be
   */
  publish: (challenge: Challenge, signal: AbortSignal) => Promise<void>
  /** Ends what publish began; safe to repeat. */
  withdraw: (challenge: Challenge) => Promise<void>
}

/** The message is for tenants. */
export class NotServed extends Error {}

export const digestOf = (keyAuthorization: string): Buffer => createHash('sha256').update(keyAuthorization).digest()

/** What decides which challenges may be used for a name. */
export type ChallengeRules = {
  /** In the order of preference. */
  preferred: readonly ChallengeType[]
  isWildcard: boolean
  isAddress: boolean
  /** Whether the hook for dns-01 may be used for this name. */
  dnsAllowed: boolean
}

/** The types among those offered that may be used, the preferred first. Pure. */
export function usableTypes(
  offered: readonly string[],
  { preferred, isWildcard, isAddress, dnsAllowed }: ChallengeRules,
): ChallengeType[] {
  return preferred.filter(type => {
    if (!offered.includes(type)) return false
    return type === 'dns-01' ? dnsAllowed && !isAddress : !isWildcard
  })
}
