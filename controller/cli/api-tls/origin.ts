import type { ServerCertificate } from '../../http/tls/server-certificate.js'

/** Where the certificate of the APIs comes from. */
export type CertificateOrigin = {
  /** For the log. */
  what: string
  /** To present at the start. */
  first: ServerCertificate
  /**
   * @returns the certificate to present from now on; null while it is the same
   * @throws Error with a clause that says why a newer one cannot be used; the former stays
   */
  newer: () => Promise<ServerCertificate | null>
  /** Seconds between two calls of `newer`. */
  intervalSeconds: number
  /** Whether someone else must renew it. */
  expires: boolean
}
