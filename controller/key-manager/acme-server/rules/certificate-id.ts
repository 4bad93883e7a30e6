/** What names a certificate in renewal information (RFC 9773, 4.1). */
export type CertificateId = {
  /** Key identifier of the issuer, in hexadecimal. */
  keyIdentifier: string
  /** 32 hexadecimal digits. */
  serial: string
}

const ID = /^([A-Za-z0-9_-]{1,100})\.([A-Za-z0-9_-]{1,40})$/
const SERIAL_BYTES = 16

/** Null for a text that names no certificate of ours. Pure. */
export function parseCertificateId(text: string): CertificateId | null {
  const [, identifier, number] = ID.exec(text) ?? []
  if (identifier === undefined || number === undefined) return null
  const bytes = Buffer.from(number, 'base64url')
  // The content of a DER integer: a zero precedes a first bit that is set.
  const serial = bytes[0] === 0 ? bytes.subarray(1) : bytes
  if (serial.length > SERIAL_BYTES || serial.length === 0) return null
  return {
    keyIdentifier: Buffer.from(identifier, 'base64url').toString('hex'),
    serial: serial.toString('hex').padStart(2 * SERIAL_BYTES, '0'),
  }
}

const RENEWAL_POINT = 2 / 3
/** Part of a certificate's life over which renewals are spread. */
const SPREAD = 1 / 36

export type RenewalWindow = { start: Date; end: Date }

/** When to renew a certificate: at two thirds of its life, or at once if it was revoked. Pure. */
export function renewalWindow(facts: { issuedAt: Date; notAfter: Date; revokedAt: Date | null }): RenewalWindow {
  const { issuedAt, notAfter, revokedAt } = facts
  // Ends before now, which tells clients to renew immediately.
  if (revokedAt !== null) return { start: new Date(revokedAt.getTime() - 60_000), end: revokedAt }
  const life = notAfter.getTime() - issuedAt.getTime()
  const start = issuedAt.getTime() + life * RENEWAL_POINT
  return { start: new Date(start), end: new Date(start + Math.max(life * SPREAD, 1000)) }
}
