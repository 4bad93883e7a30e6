import type { CertificateRequest } from '../../../x509/certificate-request.js'
import type { Asn1 } from '../../../x509/encoding/asn1.js'
import {
  authorityKeyIdentifier,
  basicConstraints,
  crlDistributionPoint,
  extendedKeyUsage,
  keyUsage,
  subjectAltName,
  subjectKeyIdentifier,
} from '../../../x509/extensions.js'
import { keyIdentifierOf, type PublicKey } from '../../../x509/public-key.js'

type Issuer = {
  keyIdentifier: Buffer
  /** Where its revocation list can be fetched without a token; null when that is not known. */
  crlUrl: string | null
}

/** Extensions of the certificate of a TLS server or client. Pure. */
export function endEntityExtensions(
  { subject, publicKey, alternativeNames }: CertificateRequest,
  issuer: Issuer,
): Asn1[] {
  const isRsa = publicKey.key.asymmetricKeyType === 'rsa'
  return [
    basicConstraints(null),
    isRsa ? keyUsage('digitalSignature', 'keyEncipherment') : keyUsage('digitalSignature'),
    extendedKeyUsage('serverAuth', 'clientAuth'),
    ...(alternativeNames.length > 0 ? [subjectAltName(alternativeNames, subject.length === 0)] : []),
    ...identifiersOf(publicKey, issuer),
  ]
}

/**
 * Extensions of the certificate of a CA. Pure.
 * @param issuer null for a root
 * @param constraints the extension of its name constraints, if it has any
 */
export function authorityExtensions(
  publicKey: PublicKey,
  pathLength: number,
  issuer: Issuer | null,
  constraints: readonly Asn1[] = [],
): Asn1[] {
  const above = issuer ?? { keyIdentifier: keyIdentifierOf(publicKey), crlUrl: null }
  return [
    basicConstraints(pathLength),
    keyUsage('keyCertSign', 'cRLSign'),
    ...constraints,
    ...identifiersOf(publicKey, above),
  ]
}

const identifiersOf = (publicKey: PublicKey, { keyIdentifier, crlUrl }: Issuer): Asn1[] => [
  subjectKeyIdentifier(keyIdentifierOf(publicKey)),
  authorityKeyIdentifier(keyIdentifier),
  ...(crlUrl === null ? [] : [crlDistributionPoint(crlUrl)]),
]
