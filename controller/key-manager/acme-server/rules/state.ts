/** Statuses follow from stored facts and the time, as RFC 8555, 7.1.6 draws them. Everything here is pure. */

export type AccountStatus = 'valid' | 'deactivated' | 'revoked'

export const accountStatus = (facts: { deactivated: boolean; bindingRevoked: boolean }): AccountStatus => {
  if (facts.bindingRevoked) return 'revoked'
  return facts.deactivated ? 'deactivated' : 'valid'
}

export type ChallengeStatus = 'pending' | 'processing' | 'valid' | 'invalid'
export type AuthorizationStatus = 'pending' | 'valid' | 'invalid' | 'deactivated' | 'expired'

export type AuthorizationFacts = {
  challenges: readonly ChallengeStatus[]
  deactivated: boolean
  expiresAt: Date
}

export function authorizationStatus(
  { challenges, deactivated, expiresAt }: AuthorizationFacts,
  now: Date,
): AuthorizationStatus {
  if (deactivated) return 'deactivated'
  if (challenges.includes('valid')) return expiresAt <= now ? 'expired' : 'valid'
  // Nothing becomes valid after its time.
  return challenges.includes('invalid') || expiresAt <= now ? 'invalid' : 'pending'
}

export type OrderStatus = 'pending' | 'ready' | 'processing' | 'valid' | 'invalid'

export type OrderFacts = {
  authorizations: readonly AuthorizationFacts[]
  expiresAt: Date
  /** The key manager's order: null before the order is finalized, `gone` if it was deleted without a result. */
  issuance: 'PENDING' | 'PROCESSING' | 'ACTIVE' | 'ERROR' | 'gone' | null
}

export function orderStatus({ authorizations, expiresAt, issuance }: OrderFacts, now: Date): OrderStatus {
  switch (issuance) {
    case 'ACTIVE':
      return 'valid'
    case 'PENDING':
    case 'PROCESSING':
      return 'processing'
    case 'ERROR':
    case 'gone':
      return 'invalid'
    case null: {
      const statuses = authorizations.map(each => authorizationStatus(each, now))
      if (expiresAt <= now || statuses.some(status => status !== 'pending' && status !== 'valid')) return 'invalid'
      return statuses.includes('pending') ? 'pending' : 'ready'
    }
  }
}
