import type { Database } from '../../../database/connection.js'
import { isDatabaseAway } from '../../../database/database-away.js'
import { ApiError } from '../../../http/errors.js'
import type { Logger } from '../../../log/log.js'
import { type Claim, isHeld } from '../../../queue/claim.js'
import { createDatabaseWait } from '../../../queue/database-wait.js'
import type { CaBackend, CaService } from '../../certificate-authorities/ca-backend.js'
import { parseCertificateSpec } from '../../certificate-authorities/certificate-meta.js'
import {
  type Applicant,
  type Obtained,
  obtainCertificate,
} from '../../certificate-authorities/issue/obtain-certificate.js'
import { openKeyOfCertificate } from '../../certificate-authorities/stored-key.js'
import { CryptoUnavailable } from '../../crypto/backend.js'
import type { Keyring } from '../../crypto/keyring.js'
import { planCertificate } from '../plan.js'
import { chanceOf, retryPause } from '../schedule.js'
import { giveNotice } from './notice.js'
import { type ClaimedCertificate, readCertificate } from './read-certificate.js'
import { withRenewalInfo } from './renewal-info.js'
import { abandon, postponeRenewal, recordFailedAttempt, releaseUntil } from './settle.js'
import { storeRenewal } from './store-renewal.js'

export type RenewalContext = {
  database: Database
  keyring: Keyring
  service: CaService
  backends: readonly CaBackend[]
  log: Logger
  /** Milliseconds since 1970. */
  now?: () => number
}

/** After so many attempts that never reported a result, the certificate probably kills its workers. */
const MAX_LAPSED_CLAIMS = 5

/** What the tenant sees when the fault is ours. */
const INTERNAL = 'The renewal failed because of a fault in the service.'
const KEYS_AWAY = 'Keys cannot be stored at the moment.'
const LAPSED_TOO_OFTEN = `The renewal was started ${MAX_LAPSED_CLAIMS} times and interrupted each time.`
const REFERENCE_GONE = 'The private key of the certificate was deleted.'

/**
 * Does what is due for one claimed certificate and ends the claim. Never throws. Without the database, the lease expires
 * and the certificate is claimed again.
 * @returns seconds until the certificate is due again; null when this process does not know
 */
export async function attemptCertificate(
  context: RenewalContext,
  claim: Claim,
  signal: AbortSignal,
): Promise<number | null> {
  const { database, log } = context
  let certificate: ClaimedCertificate | null = null
  try {
    certificate = await readCertificate(database, claim)
    if (certificate === null) return null
    const seconds = await doWhatIsDue(context, claim, certificate, signal)
    if (signal.aborted) await abandon(database, claim)
    return seconds
  } catch (error) {
    const isAway = isDatabaseAway(error)
    log[isAway ? 'warn' : 'error']({ certificate: claim.id, err: error }, 'error while renewing a certificate')
    if (!isAway && certificate !== null && !signal.aborted) {
      await fail(context, claim, certificate, error instanceof CryptoUnavailable ? KEYS_AWAY : INTERNAL).catch(
        failure =>
          log.error(
            { certificate: claim.id, err: failure },
            'could not record a failed renewal; its lease will expire',
          ),
      )
    }
  }
  return null
}

async function doWhatIsDue(
  context: RenewalContext,
  claim: Claim,
  certificate: ClaimedCertificate,
  signal: AbortSignal,
): Promise<number | null> {
  const { database, now = Date.now } = context
  const asked = planCertificate(certificate.state, now())
  const state = asked.action === 'ask the CA' ? await withRenewalInfo(context, certificate, signal) : certificate.state
  if (signal.aborted) return null
  const plan = planCertificate(state, now())
  if (plan.notice !== null) await giveNotice(context, claim, certificate, plan.notice)
  if (plan.action === 'wait') {
    await releaseUntil(database, claim, plan, state)
    return secondsUntil(plan.dueAt, now())
  }
  if (certificate.lapsedClaims >= MAX_LAPSED_CLAIMS) return fail(context, claim, certificate, LAPSED_TOO_OFTEN)
  return renew(context, claim, certificate, signal)
}

const secondsUntil = (time: number | null, now: number): number | null => (time === null ? null : (time - now) / 1000)

async function renew(
  context: RenewalContext,
  claim: Claim,
  certificate: ClaimedCertificate,
  signal: AbortSignal,
): Promise<number | null> {
  const { database, keyring, log } = context
  const applicant = applicantOf(certificate)
  const obtained = await obtain(context, certificate, applicant, signal)
  if (signal.aborted) return null
  if (obtained.kind === 'failed') return fail(context, claim, certificate, obtained.reason)
  if (obtained.kind === 'later') {
    const { seconds, subStatus, subStatusMessage, isCaWish } = obtained
    if (subStatus !== 'cert_request_pending') {
      return fail(context, claim, certificate, subStatusMessage, isCaWish ? seconds : null)
    }
    await postponeRenewal(database, claim, seconds)
    return seconds
  }
  const stored = await whileHeld(claim, signal, () => storeRenewal({ database, keyring }, claim, applicant, obtained))
  if (stored === 'reference gone') return fail(context, claim, certificate, REFERENCE_GONE)
  log.info({ certificate: claim.id, outcome: stored, until: obtained.issued.notAfter }, 'certificate renewed')
  // It is due at once, to be planned.
  return 0
}

/** Tries again while the database is away: a certificate that is not stored costs another one. */
async function whileHeld<Result>(claim: Claim, signal: AbortSignal, store: () => Promise<Result>): Promise<Result> {
  const wait = createDatabaseWait()
  for (;;) {
    try {
      return await store()
    } catch (error) {
      if (!isDatabaseAway(error) || signal.aborted || !isHeld(claim) || wait.isOver()) throw error
      await wait.pause()
    }
  }
}

/** The renewal is in the name of the order's creator. */
const applicantOf = ({ orderId, projectId, creatorId }: ClaimedCertificate): Applicant => ({
  id: orderId,
  projectId,
  creatorId,
})

async function obtain(
  { service, backends }: RenewalContext,
  { id, meta, newKey, pem }: ClaimedCertificate,
  applicant: Applicant,
  signal: AbortSignal,
): Promise<Obtained> {
  try {
    const spec = parseCertificateSpec(meta)
    const keep = newKey ? null : () => openKeyOfCertificate(service, applicant, id)
    return await obtainCertificate(service, backends, { applicant, spec }, signal, { pem, keep })
  } catch (error) {
    // Later versions may accept less than the one that accepted the order.
    if (error instanceof ApiError && error.status === 400)
      return { kind: 'failed', statusCode: '400', reason: error.message }
    throw error
  }
}

async function fail(
  { database, log, now = Date.now }: RenewalContext,
  claim: Claim,
  { id, state, attempts }: ClaimedCertificate,
  reason: string,
  holdSeconds: number | null = null,
): Promise<number | null> {
  const time = now()
  const retryAt = time + retryPause(attempts + 1, state.notAfter - time, chanceOf(`${id} ${attempts}`))
  const holdUntil = holdSeconds === null ? null : time + holdSeconds * 1000
  const plan = planCertificate({ ...state, retryAt, holdUntil: holdUntil ?? state.holdUntil }, time)
  await recordFailedAttempt(database, claim, { reason, retryAt, holdUntil, plan })
  log.warn({ certificate: id, attempts: attempts + 1, reason, retryAt: new Date(retryAt) }, 'certificate not renewed')
  return secondsUntil(plan.dueAt, time)
}
