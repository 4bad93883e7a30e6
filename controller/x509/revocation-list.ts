import type { KeyObject } from 'node:crypto'
import { type Asn1, enumerated, integer, sequence, tagged, time, writeDer } from './encoding/asn1.js'
import { authorityKeyIdentifier, extension, OID } from './extensions.js'
import { algorithmIdentifier, signed } from './signing.js'

/** Why a certificate was revoked, with the number that revocation lists give it. */
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
  /** Greater than that of every list before. */
  number: number
  thisUpdate: Date
  nextUpdate: Date
  revoked: readonly RevokedCertificate[]
}

/** A version 2 CRL, as DER. */
export function writeRevocationList(content: RevocationListContent, issuerKey: KeyObject): Buffer {
  const unsigned = sequence(
    integer(1),
    algorithmIdentifier(issuerKey),
    content.issuer,
    time(content.thisUpdate),
    time(content.nextUpdate),
    // An empty list must be left out.
    ...(content.revoked.length > 0 ? [sequence(...content.revoked.map(entryOf))] : []),
    tagged(
      0,
      sequence(authorityKeyIdentifier(content.issuerKeyIdentifier), extension(OID.crlNumber, integer(content.number))),
    ),
  )
  return writeDer(signed(unsigned, issuerKey))
}

/** The reason "unspecified" is left out, as RFC 5280 asks for. */
const entryOf = ({ serial, at, reason }: RevokedCertificate): Asn1 =>
  sequence(
    integer(serial),
    time(at),
    ...(reason === 'unspecified' ? [] : [sequence(extension(OID.reasonCode, enumerated(REVOCATION_REASONS[reason])))]),
  )
