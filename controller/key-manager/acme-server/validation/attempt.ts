import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Logger } from '../../../log/log.js'
import { type Claim, releaseClaim } from '../../../queue/claim.js'
import type { Attempt, ChallengeToValidate } from './challenge.js'
import { validateDns } from './dns-01.js'
import { validateHttp } from './http-01.js'
import { invalid, type Outcome, unreachable } from './outcome.js'
import { abandonChallenge, postponeChallenge, settleChallenge } from './settle.js'
import { validateTls } from './tls-alpn-01.js'

export type ValidatorContext = { database: Database; world: Attempt['world']; log: Logger }

/** The longest attempt, with all its redirects. */
const ATTEMPT_MS = 40_000
/** Seconds before each further attempt when nothing was found out. */
const PAUSES: readonly number[] = [2, 5]

const VALIDATE: Readonly<Record<string, (attempt: Attempt) => Promise<Outcome>>> = {
  'http-01': validateHttp,
  'tls-alpn-01': validateTls,
  'dns-01': validateDns,
}

/**
 * Carries out and settles one claimed challenge. Never throws.
 * @returns seconds until it is due again; null for never
 */
export async function attemptChallenge(
  { database, world, log }: ValidatorContext,
  claim: Claim,
  signal: AbortSignal,
): Promise<number | null> {
  try {
    const challenge = await readChallenge(database, claim)
    if (challenge === null) {
      await abandonChallenge(database, claim)
      return null
    }
    const started = performance.now()
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ATTEMPT_MS)])
    const outcome = await validate({ world, challenge, signal: limit }, log)
    if (signal.aborted) {
      // For another validator, or the next one.
      await releaseClaim(database, claim)
      return null
    }
    const pause = PAUSES[challenge.attempts]
    const milliseconds = Math.round(performance.now() - started)
    const { challengeType, value: name } = challenge
    const { kind, ...problem } = outcome
    log.info(
      { challenge: claim.id, challengeType, name, outcome: kind, ...problem, milliseconds },
      'challenge validated',
    )
    if (outcome.kind === 'unreachable' && pause !== undefined) return await postponeChallenge(database, claim, pause)
    await settleChallenge(database, claim, outcome)
    return null
  } catch (error) {
    log.error({ challenge: claim.id, err: error }, 'could not settle a challenge; its lease will expire')
    return null
  }
}

/** A fault of ours is no fault of the client's: the challenge is tried again. */
async function validate(attempt: Attempt, log: Logger): Promise<Outcome> {
  const run = VALIDATE[attempt.challenge.challengeType]
  if (run === undefined) return invalid('malformed', 'This type of challenge is not known.')
  try {
    return await run(attempt)
  } catch (error) {
    log.error({ name: attempt.challenge.value, err: error }, 'error during a validation')
    return unreachable('serverInternal', 'The validation failed because of a fault in the service.')
  }
}

/** Null if the challenge needs no validation any more. */
async function readChallenge(
  database: Database,
  claim: Claim,
): Promise<(ChallengeToValidate & { attempts: number }) | null> {
  const found = await maybeOne(
    database,
    sql<Omit<ChallengeToValidate, 'keyAuthorization'> & { attempts: number; thumbprint: string }>`
      SELECT c.project_id AS "projectId", c.type AS "challengeType", z.type, z.value, c.token, c.attempts, a.thumbprint
        FROM acme_challenge c JOIN acme_authorization z ON z.id = c.authorization_id JOIN acme_account a ON a.id = c.account_id
        JOIN acme_binding_key b ON b.id = a.binding_key_id
       WHERE c.id = ${claim.id} AND c.fence = ${claim.fence} AND c.status = 'processing' AND z.deactivated_at IS NULL
         AND z.expires_at > now() AND a.deactivated_at IS NULL AND b.revoked_at IS NULL
         AND NOT EXISTS (SELECT FROM acme_challenge o WHERE o.authorization_id = z.id AND o.status IN ('valid', 'invalid'))`,
  )
  if (found === undefined) return null
  const { thumbprint, ...challenge } = found
  return { ...challenge, keyAuthorization: `${challenge.token}.${thumbprint}` }
}
