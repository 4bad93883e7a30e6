import { startClaimLoop } from '../../../queue/claim-loop.js'
import { nameLeaseOwner, releaseDeadClaims } from '../../../queue/lease-owner.js'
import { listenForWakeUps } from '../../../queue/wake-up.js'
import { CHALLENGE_CHANNEL } from '../wake-channel.js'
import { attemptChallenge, type ValidatorContext } from './attempt.js'
import { claimsFor, secondsUntilDue } from './due.js'

/** Processes of probes that run at once. */
const CONCURRENCY = 12
const SWEEP_MS = 30_000

export type ValidatorOptions = ValidatorContext & {
  /** The key manager's database, for the listening connection. */
  databaseUrl: string
}

/**
 * Carries out the challenges of ACME clients until stopped. Any number of validators may share one database. Projects
 * take turns.
 */
export async function startValidator(options: ValidatorOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, databaseUrl, log } = options
  await releaseDeadClaims(database, 'acme_challenge').catch(() => [])
  const loop = startClaimLoop({
    database,
    claims: claimsFor(nameLeaseOwner()),
    concurrency: CONCURRENCY,
    sweepMs: SWEEP_MS,
    secondsUntilDue: () => secondsUntilDue(database),
    attempt: async (claim, signal) => {
      const seconds = await attemptChallenge(options, claim, signal)
      // A project at its limit leaves challenges unclaimed, which may go on now.
      loop.wake()
      return seconds
    },
    log,
  })
  const wakeUps = await listenForWakeUps({ databaseUrl, channel: CHALLENGE_CHANNEL, onWake: () => loop.wake(), log })
  return {
    stop: async () => {
      await wakeUps.stop()
      await loop.stop()
    },
  }
}
