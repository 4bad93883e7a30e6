import type { Database } from '../../../database/connection.js'
import type { Logger } from '../../../log/log.js'
import type { Claim } from '../../../queue/claim.js'
import { daysLeft } from '../schedule.js'
import type { ClaimedCertificate } from './read-certificate.js'
import { recordNotice } from './settle.js'

/** Gives the notice of a level, in the log and in the certificate's events. */
export async function giveNotice(
  { database, log, now = Date.now }: { database: Database; log: Logger; now?: () => number },
  claim: Claim,
  { id, projectId, names, notAfter, state }: ClaimedCertificate,
  level: number,
): Promise<void> {
  const left = daysLeft(notAfter.getTime(), now())
  const until = notAfter.toISOString()
  const why = state.renew ? 'It has not been renewed yet.' : 'It is not renewed by itself.'
  const message = level === 0 ? `The certificate expired at ${until}.` : `The certificate expires at ${until}. ${why}`
  await recordNotice(database, claim, level, { kind: level === 0 ? 'expired' : 'expiring', message })
  log.warn({ certificate: id, project: projectId, names, until, daysLeft: left }, message)
}
