import { readServerCertificate } from '../../http/tls/server-certificate.js'
import type { CertificateOrigin } from './origin.js'

/** Until the first success, with back-off: clients meet a certificate that they may not trust. */
const FIRST_SECONDS = 1
const LATER_SECONDS = 30

/**
 * A certificate from the key manager. The key manager and the identity service need one before anyone can read it there,
 * so the APIs begin with a certificate of their own CA, which Krater's own clients trust.
 * @param beginning the origin of that certificate
 * @param read what the reference leads to now; null while that has not changed
 */
export function certificateFromReference(
  reference: string,
  beginning: CertificateOrigin,
  read: () => Promise<{ certificate: string; key: string } | null>,
): CertificateOrigin {
  let isRead = false
  const origin: CertificateOrigin = {
    what: `api.tls.reference (${reference})`,
    first: beginning.first,
    newer: async () => {
      try {
        const stored = await read()
        if (stored === null) return null
        const certificate = readServerCertificate(stored.certificate, stored.key)
        isRead = true
        origin.intervalSeconds = LATER_SECONDS
        origin.expires = true
        return certificate
      } catch (error) {
        if (isRead) throw error
        origin.intervalSeconds = Math.min(origin.intervalSeconds * 2, LATER_SECONDS)
        const renewed = await beginning.newer()
        if (renewed === null) throw error
        return renewed
      }
    },
    intervalSeconds: FIRST_SECONDS,
    expires: false,
  }
  return origin
}
