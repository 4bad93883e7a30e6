import type { CertificateRequest } from '../../../../x509/certificate-request.js'
import type { Asn1 } from '../../../../x509/encoding/asn1.js'
import {
  authorityKeyIdentifier,
  basicConstraints,
  crlDistributionPoint,
  extendedKeyUsage,
  keyUsage,
  subjectAltName,
  subjectKeyIdentifier,
} from '../../../../x509/extensions.js'
import { keyIdentifierOf, type PublicKey } from '../../../../x509/public-key.js'

type Issuer = {
  keyIdentifier: Buffer
  /** URL of its revocation list; null if it is unknown. */
  crlUrl: string | null
}

/** Extensions for the certificate of a TLS server or client. Pure. */
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
    ...identifierExtensions(publicKey, issuer),
  ]
}

/**
 * Extensions for the certificate of a CA. Pure.
 * @param issuer null for a root
 * @param constraints the name constraints extension, or empty
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
    ...identifierExtensions(publicKey, above),
  ]
}

const identifierExtensions = (publicKey: PublicKey, { keyIdentifier, crlUrl }: Issuer): Asn1[] => [
  subjectKeyIdentifier(keyIdentifierOf(publicKey)),
  authorityKeyIdentifier(keyIdentifier),
  ...(crlUrl === null ? [] : [crlDistributionPoint(crlUrl)]),
]
