import { startClaimLoop } from '../../../queue/claim-loop.js'
import { nameLeaseOwner, releaseDeadClaims } from '../../../queue/lease-owner.js'
import { listenForWakeUps } from '../../../queue/wake-up.js'
import { CERTIFICATE_CHANNEL } from '../../certificate-authorities/issue/certificate-row.js'
import { attemptCertificate, type RenewalContext } from './attempt.js'
import { certificateClaims, secondsUntilCertificateDue } from './due.js'
import type { RenewalSettings } from './options.js'

export type RenewalWorkerOptions = RenewalContext & {
  /** The key manager's database, for the listening connection. */
  databaseUrl: string
  config: RenewalSettings
  /** The lease_owner; unique per start of a worker. */
  owner?: string
}

/**
 * Renews certificates and gives notices before their expiry until stopped; see startClaimLoop. Any number of workers may
 * share one database. Projects take turns.
 */
export async function startRenewalWorker(options: RenewalWorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, databaseUrl, config, log, owner = nameLeaseOwner() } = options
  await releaseDeadClaims(database, 'certificate').catch(() => [])
  const loop = startClaimLoop({
    database,
    claims: certificateClaims(owner),
    concurrency: config.concurrency,
    sweepMs: config.sweep_interval * 1000,
    secondsUntilDue: () => secondsUntilCertificateDue(database),
    attempt: (claim, signal) => attemptCertificate(options, claim, signal),
    log,
  })
  const wakeUps = await listenForWakeUps({ databaseUrl, channel: CERTIFICATE_CHANNEL, onWake: loop.wake, log })
  return {
    stop: async () => {
      await wakeUps.stop()
      await loop.stop()
    },
  }
}
