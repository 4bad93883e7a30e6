import { setTimeout as sleep } from 'node:timers/promises'
import { expiryOf, type ServerCertificate } from '../../http/tls/server-certificate.js'
import type { Logger } from '../../log/log.js'
import type { CertificateOrigin } from './origin.js'

const DAY_MS = 86_400_000
/** A certificate that someone else must renew is mentioned each day from then on. */
const WARN_DAYS = 14

/**
 * Presents what an origin newly has, until stopped. What cannot be used is logged once, and the former certificate stays.
 * @param present gets each new certificate
 * @returns stops it
 */
export function keepCertificate(
  origin: CertificateOrigin,
  present: (certificate: ServerCertificate) => void,
  log: Logger,
): () => Promise<void> {
  const stopped = new AbortController()
  let current = origin.first
  let complaint = ''
  let warnedAt = Number.NEGATIVE_INFINITY

  const look = async () => {
    const newer = await origin.newer()
    complaint = ''
    if (newer === null) return
    present(newer)
    current = newer
    warnedAt = Number.NEGATIVE_INFINITY
    log.info({ validUntil: expiryOf(newer.leaf) }, `The APIs present a new certificate from ${origin.what}`)
  }
  const complain = (error: Error) => {
    if (error.message === complaint) return
    complaint = error.message
    const until = expiryOf(current.leaf).toISOString()
    log.warn(`No new certificate from ${origin.what}: ${error.message}. The APIs keep the former, valid until ${until}`)
  }
  const warn = () => {
    const expiry = expiryOf(current.leaf)
    const isDue = Date.now() > expiry.getTime() - WARN_DAYS * DAY_MS && Date.now() - warnedAt >= DAY_MS
    if (!origin.expires || !isDue) return
    warnedAt = Date.now()
    const verb = expiry.getTime() < Date.now() ? 'expired' : 'expires'
    log.warn(`The certificate of the APIs, from ${origin.what}, ${verb} at ${expiry.toISOString()}. Renew it`)
  }
  const keep = async () => {
    warn()
    while (!stopped.signal.aborted) {
      await sleep(origin.intervalSeconds * 1000, undefined, { signal: stopped.signal }).catch(() => undefined)
      if (stopped.signal.aborted) return
      await look().catch(complain)
      warn()
    }
  }
  const keeping = keep()
  return async () => {
    stopped.abort()
    await keeping
  }
}
