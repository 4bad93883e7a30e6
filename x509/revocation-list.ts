import type { KeyObject } from 'node:crypto'
import { type Asn1, enumerated, integer, sequence, tagged, time, writeDer } from './encoding/asn1.js'
import { authorityKeyIdentifier, extension, OID } from './extensions.js'
import { algorithmIdentifier, signed } from './signing.js'

/** Revocation reasons, with their CRLReason of RFC 5280. */
export const REVOCATION_REASONS = {
  unspecified: 0,
  keyCompromise: 1,
  cACompromise: 2,
  affiliationChanged: 3,
  superseded: 4,
  cessationOfOperation: 5,
  privilegeWithdrawn: 9,
} as const

export type RevocationReason = keyof typeof REVOCATION_REASONS

export const isRevocationReason = (text: string): text is RevocationReason => Object.hasOwn(REVOCATION_REASONS, text)

export type RevokedCertificate = { serial: Buffer; at: Date; reason: RevocationReason }

export type RevocationListContent = {
  issuer: Asn1
  issuerKeyIdentifier: Buffer
  /** Greater than that of every earlier list. */
  number: number
  thisUpdate: Date
  nextUpdate: Date
  revoked: readonly RevokedCertificate[]
}

/** DER of a version 2 CRL. */
export function writeRevocationList(content: RevocationListContent, issuerKey: KeyObject): Buffer {
  const unsigned = sequence(
    integer(1),
    algorithmIdentifier(issuerKey),
    content.issuer,
    time(content.thisUpdate),
    time(content.nextUpdate),
    // RFC 5280 forbids an empty list.
    ...(content.revoked.length > 0 ? [sequence(...content.revoked.map(entryOf))] : []),
    tagged(
      0,
      sequence(authorityKeyIdentifier(content.issuerKeyIdentifier), extension(OID.crlNumber, integer(content.number))),
    ),
  )
  return writeDer(signed(unsigned, issuerKey))
}

/** Omits the reason "unspecified", as RFC 5280 recommends. */
const entryOf = ({ serial, at, reason }: RevokedCertificate): Asn1 =>
  sequence(
    integer(serial),
    time(at),
    ...(reason === 'unspecified' ? [] : [sequence(extension(OID.reasonCode, enumerated(REVOCATION_REASONS[reason])))]),
  )
