import type { Identifier } from '../problem.js'
import type { Reach } from './reach.js'
import type { NameResolver } from './resolver.js'

export type ChallengeToValidate = {
  projectId: string
  challengeType: string
  type: Identifier['type']
  value: string
  token: string
  keyAuthorization: string
}

/** One attempt to validate a challenge. */
export type Attempt = {
  world: { resolver: NameResolver; reach: Reach }
  challenge: ChallengeToValidate
  signal: AbortSignal
}
